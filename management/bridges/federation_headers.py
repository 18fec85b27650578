"""The headers of federated messages, as RabbitMQ writes them: where a message has come from, and
what it was before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.client.properties import ListedProperties, Long, Malformed
from broker.schema.hops import RECEIVED_FROM, may_forward

USER_ID_BIT = 4
ORIGINAL_EXCHANGE = "x-original-exchange"
ORIGINAL_KEY = "x-original-routing-key"
KEPT = 256
"""Property lists whose new form is remembered: many messages have the same."""


class UserId:
    """Which user-id a message keeps: with `trusts` that of the link's own user, and every one where
    that user may publish in other names."""

    def __init__(self, owner: str | None, *, trusts: bool, impersonates: bool) -> None:
        self._owner = owner
        self._trusts = trusts
        self._all = trusts and impersonates

    def treat(self, properties: ListedProperties) -> None:
        """Removes the user-id, unless it may stay."""
        if self._all:
            return
        found = properties.take(USER_ID_BIT)
        if found is not None and self._trusts and found == self._owner:
            properties.set_property("user_id", found)


class ExchangeHeaders:
    """Those of an exchange's link. Called with a property list and whether the source says that it
    was delivered before; gives the list to publish, None for a message that is not to come here.
    `passed` is what the message gets for this link."""

    def __init__(
        self, passed: dict[str, Any], user_id: UserId, *, max_hops: int, cluster: str, vhost: str
    ) -> None:
        self._passed = passed
        self._user_id = user_id
        self._max_hops = max_hops
        self._cluster = cluster
        self._vhost = vhost
        self._known: dict[tuple[bytes, bool], bytes | None] = {}

    def __call__(self, listed: bytes, is_marked: bool) -> bytes | None:
        key = listed, is_marked
        if key not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = self._changed(listed, is_marked)
        return self._known[key]

    def _changed(self, listed: bytes, is_marked: bool) -> bytes | None:
        try:
            properties = ListedProperties(listed)
        except Malformed:
            return listed  # it goes as it is
        before = _trail(properties)
        if not may_forward({RECEIVED_FROM: before}, self._max_hops, self._cluster, self._vhost):
            return None
        own = {**self._passed, "redelivered": is_marked}
        properties.set_header(RECEIVED_FROM, [own, *before])
        self._user_id.treat(properties)
        return properties.encode()


class QueueHeaders:
    """Those of a queue's link. Called with the exchange and key of the message, too."""

    def __init__(self, passed: dict[str, Any], user_id: UserId) -> None:
        self._passed = passed
        self._user_id = user_id
        self._known: dict[tuple[bytes, bool, bytes, bytes], bytes] = {}

    def __call__(self, listed: bytes, is_marked: bool, exchange: bytes, key: bytes) -> bytes:
        known = listed, is_marked, exchange, key
        if known not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[known] = self._changed(listed, is_marked, exchange, key)
        return self._known[known]

    def _changed(self, listed: bytes, is_marked: bool, exchange: bytes, key: bytes) -> bytes:
        try:
            properties = ListedProperties(listed)
        except Malformed:
            return listed
        before = _trail(properties)
        visits = [each for each in before if _is_same(each, self._passed)]
        count = visits[0].get("visit-count") if visits else 0
        count = count if isinstance(count, int) else 0
        own = {**self._passed, "redelivered": is_marked, "visit-count": Long(count + 1)}
        if not before:
            # Only the first link knows what the message was published with.
            properties.set_header(ORIGINAL_EXCHANGE, exchange.decode("utf-8", "surrogateescape"))
            properties.set_header(ORIGINAL_KEY, key.decode("utf-8", "surrogateescape"))
        copies = properties.header("CC")
        if copies is not None:
            properties.remove_header("CC")
            properties.set_header("x-original-cc", copies)
        rest = [each for each in before if not _is_same(each, self._passed)]
        properties.set_header(RECEIVED_FROM, [own, *rest])
        self._user_id.treat(properties)
        return properties.encode()


def _trail(properties: ListedProperties) -> list[Any]:
    found = properties.header(RECEIVED_FROM)
    return list(found) if isinstance(found, list | tuple) else []


def _is_same(each: Any, passed: dict[str, Any]) -> bool:
    """Whether a table is of this very link."""
    return isinstance(each, Mapping) and all(
        each.get(name) == value for name, value in passed.items()
    )
