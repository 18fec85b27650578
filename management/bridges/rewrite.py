"""The properties that a shovel gives to messages: forward headers, properties of the definition,
and the mark of what may be there twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker.client.properties import TABLE, ListedProperties, Long, Malformed, encode
from management.bridges.plan import Plan, ShovelFailed
from management.bridges.properties import Known, keep_own

MARK = "x-shovel-redelivered"


class Rewrite:
    """Called with a property list and whether the message may be a double; gives the list to
    publish. Raises ValueError for a message that has no room for what is added.

    `user` is who publishes it: a user-id of another user is removed, unless the definition sets
    one."""

    def __init__(
        self,
        plan: Plan,
        src_uri: str,
        dest_uri: str,
        user: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises ShovelFailed for properties of the definition that no message can have."""
        self._properties = _given(plan.given["dest-publish-properties"] or {})
        self._stamps: bool = plan.given["dest-add-timestamp-header"]
        self._trail = (
            _trail(plan, src_uri, dest_uri) if plan.given["dest-add-forward-headers"] else None
        )
        self._user = user
        self._clock = clock
        self._second = 0
        self._known: Known[tuple[bytes, bool], bytes] = Known()

    @property
    def of_all(self) -> bool:
        """Whether every message is changed, not only those that are marked or have a user-id."""
        return bool(self._properties or self._stamps or self._trail)

    def __call__(self, listed: bytes, is_marked: bool) -> bytes:
        if self._stamps and int(self._clock()) != self._second:
            self._second = int(self._clock())
            self._known.clear()
        return self._known.get_or(
            (listed, is_marked), listed, lambda: self._changed(listed, is_marked)
        )

    def again(self, listed: bytes) -> bytes:
        """The list of a message that was refused, and has what is added to it already. Raises
        ValueError."""
        try:
            properties = ListedProperties(listed)
        except Malformed:
            return listed
        properties.set_header(MARK, True)
        return properties.encode()

    def _changed(self, listed: bytes, is_marked: bool) -> bytes:
        try:
            properties = ListedProperties(listed)
        except Malformed:
            return listed  # it goes as it is
        keep_own(properties, self._user)
        for name, value in self._properties.items():
            if name == "headers":
                for header, item in value.items():
                    properties.set_header(header, item)
            else:
                properties.set_property(name, value)
        if self._trail is not None:
            before = properties.header("x-shovelled")
            trail = [self._trail, *(before if isinstance(before, list) else [])]
            properties.set_header("x-shovelled", trail)
        if self._stamps:
            properties.set_header("x-shovelled-timestamp", Long(self._second))
        if is_marked:
            properties.set_header(MARK, True)
        return properties.encode()


def _given(properties: dict[str, Any]) -> dict[str, Any]:
    """The properties of the definition by the names of the table. Raises ShovelFailed: what no
    message can have is not a reason to refuse each of them."""
    names = {name for name, *_ in TABLE}
    found = {}
    for key, value in properties.items():
        name = key.replace("-", "_")
        if name not in names:
            raise ShovelFailed(
                f"dest-publish-properties: messages have no property {key}", stops=True
            )
        if name == "headers" and not isinstance(value, dict):
            raise ShovelFailed("dest-publish-properties: headers is no table", stops=True)
        if value is not None:
            found[name] = value
    try:
        encode(found)
    except ValueError as error:
        raise ShovelFailed(f"dest-publish-properties: {error}", stops=True) from None
    return found


def _trail(plan: Plan, src_uri: str, dest_uri: str) -> dict[str, Any]:
    """What RabbitMQ's header x-shovelled says of one shovel."""
    given = plan.given
    found = {
        "shovelled-by": "leveret",
        "shovel-type": "dynamic",
        "shovel-name": plan.name,
        "shovel-vhost": plan.vhost,
        "src-uri": src_uri,
        "dest-uri": dest_uri,
    }
    for key in (
        "src-queue",
        "src-exchange",
        "src-exchange-key",
        "dest-queue",
        "dest-exchange",
        "dest-exchange-key",
    ):
        if given[key]:
            found[key] = given[key]
    return found
