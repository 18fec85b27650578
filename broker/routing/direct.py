"""The direct exchange: bindings whose key equals the message's (AMQP 0-9-1 section 3.1.3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.kernel.wide_dict import WideDict
from broker.routing.exchange import NO_PROPERTIES, Binding, BoundExchange, Identity, identity

NONE: dict[Identity, Binding] = {}


class DirectExchange(BoundExchange):
    type = "direct"
    by_each_key = True

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._by_key: WideDict[str, dict[Identity, Binding]] = WideDict()

    def add(self, binding: Binding) -> None:
        bindings = self._by_key.get(binding.routing_key)
        if bindings is None:
            bindings = self._by_key[binding.routing_key] = {}
        bindings[identity(binding)] = binding

    def remove(self, binding: Binding) -> None:
        bindings = self._by_key[binding.routing_key]
        del bindings[identity(binding)]
        if not bindings:
            del self._by_key[binding.routing_key]

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        return iter(self._by_key.get(routing_key, NONE).values())
