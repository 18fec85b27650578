"""Who sees what: the one place where it is decided, for every listener of both processes.

Lists and their counts, single objects, searches, pushes, problems, totals, charts, event streams,
the log and reports ask here before anything is counted, cut or sorted. What AMQP's patterns permit
a user to do with an object that is seen is `broker.access.rights`. Imports only the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

from broker.schema.control_schema import NOUNS, Shown, Tag

MANAGEMENT_TAGS = frozenset({"management", "policymaker", "monitoring", "administrator"})

EVENTS_SHOWN: dict[str, Shown | Literal["administrators"]] = {
    "session.ended": "administrators",
    "user.created": "administrators",
    "user.changed": "administrators",
    "user.deleted": "administrators",
    "permission.changed": "administrators",
    "policy.changed": "vhost",
    "vhost.created": "vhost name",
    "vhost.deleted": "vhost name",
    "queue.created": "vhost",
    "queue.deleted": "vhost",
    "exchange.created": "vhost",
    "exchange.deleted": "vhost",
    "connection.created": "connection",
    "connection.closed": "connection",
    "alarm.set": "node",
    "alarm.cleared": "node",
}
"""Which users get each event of `control_schema.EVENTS` pushed."""


def has_tag(tags: Iterable[str], wanted: Tag) -> bool:
    """Whether a user's tags are enough for a rule of the tables."""
    if wanted == "appliance":
        return False
    if wanted == "anyone":
        return True
    if wanted == "management":
        return not MANAGEMENT_TAGS.isdisjoint(tags)
    return not {wanted, "administrator"}.isdisjoint(tags)


class _User(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> Iterable[str]: ...


class _Access(Protocol):
    def vhost_access(self, user: str, vhost: str) -> bool: ...


class Sight:
    """What one user sees. Without a user it is the appliance itself, which sees everything."""

    __slots__ = ("_access", "user")

    def __init__(self, access: _Access, user: _User | None) -> None:
        self._access = access
        self.user = user

    def has(self, tag: Tag) -> bool:
        """Whether the user's tags are enough for a rule of the tables."""
        return self.user is None or has_tag(self.user.tags, tag)

    @property
    def of_node(self) -> bool:
        """The whole node: its totals and charts, every connection, channel and publisher, the names
        and totals of every vhost, the log."""
        return self.has("monitoring")

    def of_vhost(self, vhost: str) -> bool:
        """What is in a vhost: with a permission row there, of whatever patterns, or as
        administrator."""
        if self.user is None or self.has("administrator"):
            return True
        return self._access.vhost_access(self.user.name, vhost)

    def of_vhost_name(self, vhost: str) -> bool:
        """That there is a vhost, and its totals."""
        return self.of_node or self.of_vhost(vhost)

    def of_connection(self, owner: str | None) -> bool:
        """A connection of that user with its channels, addresses and publish rates."""
        return self.of_node or (self.user is not None and owner == self.user.name)

    def of_user(self, name: str) -> bool:
        """What is kept of a user."""
        return self.has("administrator") or (self.user is not None and name == self.user.name)

    def of_share(self, vhost: str, owner: str | None) -> bool:
        """A part of the problems, by the rule of what they are about: connections if it has an
        owner, else queues."""
        return self.of_vhost(vhost) if owner is None else self.of_connection(owner)

    def of_noun(self, noun: str, place: str | None) -> bool:
        """A thing of a noun; `place` is what its rule asks about: the name of its vhost, or of its
        user."""
        return self._by_rule(NOUNS[noun].scope, place)

    def of_every(self, noun: str) -> bool:
        """Every thing of a noun, whatever its vhost or user: none of them has to be asked about."""
        rule = NOUNS[noun].scope
        if self.user is None or rule == "node":
            return True
        if rule == "connection":
            return self.of_node
        # What has no place is not for users.
        return False

    def of_event(self, event: str, data: Mapping[str, Any]) -> bool:
        """An event with these data."""
        rule = EVENTS_SHOWN[event]
        if rule == "administrators":
            return self.has("administrator")
        key = {"vhost": "vhost", "vhost name": "name", "connection": "user"}.get(rule, "")
        return self._by_rule(rule, data.get(key))

    def _by_rule(self, rule: Shown, place: str | None) -> bool:
        if rule == "node":
            return True
        if rule == "connection":
            return self.of_connection(place)
        if place is None:
            return self.user is None
        if rule == "vhost":
            return self.of_vhost(place)
        return self.of_vhost_name(place) if rule == "vhost name" else self.of_user(place)
