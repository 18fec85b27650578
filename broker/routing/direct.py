"""The direct exchange: bindings whose key equals the message's (AMQP 0-9-1 section 3.1.3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.kernel.wide_dict import WideDict
from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange

NONE: dict[Binding, Binding] = {}


class DirectExchange(BoundExchange):
    type = "direct"
    by_each_key = True

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        # A dict only where several bindings have one key: most have a key of their own.
        self._by_key: WideDict[str, Binding | dict[Binding, Binding]] = WideDict()

    def add(self, binding: Binding) -> None:
        there = self._by_key.get(binding.routing_key)
        if there is None:
            self._by_key[binding.routing_key] = binding
        elif isinstance(there, Binding):
            self._by_key[binding.routing_key] = {there: there, binding: binding}
        else:
            there[binding] = binding

    def remove(self, binding: Binding) -> None:
        there = self._by_key[binding.routing_key]
        if isinstance(there, Binding):
            del self._by_key[binding.routing_key]
            return
        del there[binding]
        if len(there) == 1:
            (self._by_key[binding.routing_key],) = there.values()

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        there = self._by_key.get(routing_key, NONE)
        return iter((there,) if isinstance(there, Binding) else there.values())
