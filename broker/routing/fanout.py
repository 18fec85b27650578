"""The fanout exchange: every binding, whatever the key (AMQP 0-9-1 section 3.1.3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange


class FanoutExchange(BoundExchange):
    type = "fanout"

    def add(self, binding: Binding) -> None:
        """`bindings` is all a fanout needs."""

    def remove(self, binding: Binding) -> None:
        """See `add`."""

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        return iter(self.bindings.values())

    def match_all(
        self,
        routing_keys: Sequence[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterable[Binding]:
        return self.bindings.values()
