"""The exchange type `x-delayed-message` of RabbitMQ's plugin: any other type, with delays.

The argument `x-delayed-type` names the type that routes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange
from broker.routing.types import TYPES
from broker.schema.errors import PreconditionFailed
from broker.settings.bounds import Bounds


class DelayedMessageExchange(BoundExchange):
    type = "x-delayed-message"

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self.inner: BoundExchange = TYPES[self.arguments["x-delayed-type"]](name, **properties)
        # Both names are of one thing: the inner type looks its bindings up where this one keeps
        # them.
        self.inner.bindings = self.bindings
        self.by_key = self.inner.by_key
        self.by_each_key = self.inner.by_each_key
        self.picks_one = self.inner.picks_one
        self.argument_cost = self.inner.argument_cost

    @property
    def bounds(self) -> Bounds:
        """Those of the configuration, which the inner type asks for."""
        return self.inner.bounds

    @bounds.setter
    def bounds(self, bounds: Bounds) -> None:
        self.inner.bounds = bounds

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        kind = arguments.get("x-delayed-type")
        if not isinstance(kind, str) or kind not in TYPES or TYPES[kind] is cls:
            raise PreconditionFailed(
                "Invalid argument, 'x-delayed-type' must be an existing exchange type"
            )
        TYPES[kind].check_arguments(arguments)

    def check(self, binding: Binding) -> None:
        self.inner.check(binding)

    def add(self, binding: Binding) -> None:
        self.inner.add(binding)

    def remove(self, binding: Binding) -> None:
        self.inner.remove(binding)

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        return self.inner.match(routing_key, headers, properties)
