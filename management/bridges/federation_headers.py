"""The headers of federated messages, as RabbitMQ writes them: where a message has come from, and
what it was before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.client.properties import ListedProperties, Long, Malformed
from broker.schema.hops import RECEIVED_FROM, may_forward
from management.bridges.properties import USER_ID_BIT, Known

ORIGINAL_EXCHANGE = "x-original-exchange"
ORIGINAL_KEY = "x-original-routing-key"
VISITS_MOST = 2**63 - 1


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
    Raises ValueError for one that cannot have its trail: without it a ring would pass the message
    on for ever. `passed` is what the message gets for this link."""

    def __init__(
        self, passed: dict[str, Any], user_id: UserId, *, max_hops: int, cluster: str, vhost: str
    ) -> None:
        self._passed = passed
        self._user_id = user_id
        self._max_hops = max_hops
        self._cluster = cluster
        self._vhost = vhost
        self._known: Known[tuple[bytes, bool], bytes | None] = Known()

    def __call__(self, listed: bytes, is_marked: bool) -> bytes | None:
        return self._known.get_or(
            (listed, is_marked), listed, lambda: self._changed(listed, is_marked)
        )

    def _changed(self, listed: bytes, is_marked: bool) -> bytes | None:
        properties = _opened(listed)
        before = _trail(properties)
        if not may_forward({RECEIVED_FROM: before}, self._max_hops, self._cluster, self._vhost):
            return None
        own = {**self._passed, "redelivered": is_marked}
        return _with_trail(properties, [own, *before], self._user_id)


class QueueHeaders:
    """Those of a queue's link. Called with the exchange and key of the message, too. Raises
    ValueError as the other."""

    def __init__(self, passed: dict[str, Any], user_id: UserId) -> None:
        self._passed = passed
        self._user_id = user_id
        self._known: Known[tuple[bytes, bool, bytes, bytes], bytes] = Known()

    def __call__(self, listed: bytes, is_marked: bool, exchange: bytes, key: bytes) -> bytes:
        known = listed, is_marked, exchange, key
        return self._known.get_or(known, listed, lambda: self._changed(*known))

    def _changed(self, listed: bytes, is_marked: bool, exchange: bytes, key: bytes) -> bytes:
        properties = _opened(listed)
        before = _trail(properties)
        visits = [each for each in before if _is_same(each, self._passed)]
        count = visits[0].get("visit-count") if visits else 0
        count = min(count + 1, VISITS_MOST) if isinstance(count, int) else 1
        own = {**self._passed, "redelivered": is_marked, "visit-count": Long(count)}
        if not before:
            # Only the first link knows what the message was published with.
            properties.set_header(ORIGINAL_EXCHANGE, exchange.decode("utf-8", "surrogateescape"))
            properties.set_header(ORIGINAL_KEY, key.decode("utf-8", "surrogateescape"))
        copies = properties.header("CC")
        if copies is not None:
            properties.remove_header("CC")
            properties.set_header("x-original-cc", copies)
        rest = [each for each in before if not _is_same(each, self._passed)]
        return _with_trail(properties, [own, *rest], self._user_id)


def _opened(listed: bytes) -> ListedProperties:
    try:
        return ListedProperties(listed)
    except Malformed:
        raise ValueError("its properties cannot be read") from None


def _with_trail(properties: ListedProperties, passed: list[Any], user_id: UserId) -> bytes:
    """The list to publish. Raises ValueError."""
    properties.set_header(RECEIVED_FROM, passed)
    if RECEIVED_FROM not in properties.names():
        raise ValueError("its headers cannot be read")
    user_id.treat(properties)
    return properties.encode()


def _trail(properties: ListedProperties) -> list[Any]:
    found = properties.header(RECEIVED_FROM)
    return list(found) if isinstance(found, list | tuple) else []


def _is_same(each: Any, passed: dict[str, Any]) -> bool:
    """Whether a table is of this very link."""
    return isinstance(each, Mapping) and all(
        each.get(name) == value for name, value in passed.items()
    )
