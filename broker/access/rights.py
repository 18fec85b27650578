"""What one user may do in one vhost: AMQP, WebSocket and HTTP all ask here.

What a method needs beside the permission for its own name stands here once, so that no protocol
forgets a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.access.records import Kind
from broker.schema.errors import PreconditionFailed

if TYPE_CHECKING:
    from broker.access.accounts import Access

LEADS_TO = {
    "queue": ("x-dead-letter-exchange",),
    "exchange": ("alternate-exchange", "x-alternate-exchange"),
}
"""Arguments of a declare that name an exchange to which messages are forwarded."""


KEPT = 16
"""Resources whose permissions are remembered: a client declares, binds and consumes a few."""


class Rights:
    """Without a user it is the appliance itself, which may do everything. What is not permitted
    raises AccessRefused."""

    __slots__ = ("_access", "_granted", "_user", "_version", "_vhost")

    def __init__(self, access: Access, user: str | None, vhost: str) -> None:
        self._access = access
        self._user = user
        self._vhost = vhost
        self._version = -1
        self._granted: set[tuple[str, str, str]] = set()
        """Kind, resource's kind and name of what was asked for and granted, as of that version."""

    def check(self, kind: Kind, resource_kind: str, name: str) -> None:
        """May `configure`, `write` or `read` a queue or an exchange."""
        if self._user is None:
            return
        asked = (kind, resource_kind, name)
        if self._version == self._access.version:
            if asked in self._granted:
                return
            if len(self._granted) >= KEPT:
                self._granted.clear()
        else:
            self._version = self._access.version
            self._granted.clear()
        self._access.check(self._user, self._vhost, kind, resource_kind, name)
        self._granted.add(asked)

    def check_declare(
        self, resource_kind: str, name: str, arguments: Mapping[str, Any], *, is_new: bool
    ) -> None:
        """May declare it under this name, and, if it is new, forward its messages to the exchange
        in the arguments: a user who may not read it or write there cannot make the broker do so. A
        redeclaration changes nothing and needs no more than the first, as in RabbitMQ."""
        self.check("configure", resource_kind, name)
        if not is_new:
            return
        for argument in LEADS_TO[resource_kind]:
            exchange = arguments.get(argument)
            if isinstance(exchange, str):
                self.check("read", resource_kind, name)
                self.check("write", "exchange", exchange)

    def check_binding(self, source: str, destination: str, destination_type: str) -> None:
        """May bind these two, or unbind them; for a topic exchange see `check_topics` too."""
        self.check("write", destination_type, destination)
        self.check("read", "exchange", source)

    def check_topics(self, kind: Kind, exchange: Any, routing_keys: Iterable[str]) -> None:
        """May `write` or `read` every one of the keys, if the exchange is a topic exchange."""
        if self._user is not None and exchange is not None and exchange.type == "topic":
            for key in routing_keys:
                self._access.check_topic(self._user, self._vhost, kind, exchange.name, key)

    def check_user_id(self, user_id: str) -> None:
        """May publish in this name. Raises PreconditionFailed."""
        if self._user is None or user_id == self._user:
            return
        user = self._access.users.get(self._user)
        if user is None or "impersonator" not in user.tags:
            raise PreconditionFailed(
                f"user_id property set to '{user_id}' but authenticated user was '{self._user}'"
            )
