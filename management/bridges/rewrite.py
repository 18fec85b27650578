"""The properties that a shovel gives to messages: forward headers, properties of the definition,
and the mark of what may be there twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker.client.properties import ListedProperties, Long, Malformed
from management.bridges.plan import Plan

MARK = "x-shovel-redelivered"
KEPT = 256
"""Property lists whose new form is remembered: many messages have the same."""


class Rewrite:
    """Called with a property list and whether the message may be a double; gives the list to
    publish."""

    def __init__(
        self, plan: Plan, src_uri: str, dest_uri: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._properties: dict[str, Any] = {
            name.replace("-", "_"): value
            for name, value in (plan.given["dest-publish-properties"] or {}).items()
        }
        self._stamps: bool = plan.given["dest-add-timestamp-header"]
        self._trail = (
            _trail(plan, src_uri, dest_uri) if plan.given["dest-add-forward-headers"] else None
        )
        self._clock = clock
        self._second = 0
        self._known: dict[tuple[bytes, bool], bytes] = {}

    @property
    def of_all(self) -> bool:
        """Whether every message is changed, not only those that are marked."""
        return bool(self._properties or self._stamps or self._trail)

    def __call__(self, listed: bytes, is_marked: bool) -> bytes:
        if self._stamps and int(self._clock()) != self._second:
            self._second = int(self._clock())
            self._known.clear()
        key = listed, is_marked
        found = self._known.get(key)
        if found is None:
            found = self._changed(listed, is_marked)
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = found
        return found

    def _changed(self, listed: bytes, is_marked: bool) -> bytes:
        try:
            properties = ListedProperties(listed)
        except Malformed:
            return listed  # it goes as it is
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
