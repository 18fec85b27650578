"""The exchange type `x-federation-upstream`: a downstream declares one here, between an exchange
and the queue that it takes messages from. It is a fanout that leaves out what the downstream has
seen, or what has come far enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange
from broker.schema import hops
from broker.schema.errors import PreconditionFailed


class FederationUpstreamExchange(BoundExchange):
    type = hops.TYPE
    by_key = False

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._max_hops = int(self.arguments[hops.MAX_HOPS])
        self._cluster = self.arguments.get(hops.DOWNSTREAM_NAME)
        self._vhost = self.arguments.get(hops.DOWNSTREAM_VHOST)

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        value = arguments.get(hops.MAX_HOPS)
        if isinstance(value, bool) or not isinstance(value, int):
            raise PreconditionFailed(f"Invalid argument, '{hops.MAX_HOPS}' must be a number")

    def add(self, binding: Binding) -> None:
        """`bindings` is all it needs."""

    def remove(self, binding: Binding) -> None:
        """See `add`."""

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        if hops.may_forward(headers, self._max_hops, self._cluster, self._vhost):
            return iter(self.bindings.values())
        return iter(())
