"""The headers exchange: the binding's arguments against the message's headers (AMQP 0-9-1 section
3.1.3.4, with RabbitMQ's x-match).

`all` and `any` leave out keys that begin with `x-`; `all-with-x` and `any-with-x` compare them too.
A binding without a value (void) asks for the header's presence only.

What matching can cost a message is known (`broker.routing.header_index`), and a binding that would
raise it above `headers_comparisons_max` is refused: a publish never is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange
from broker.routing.header_index import HeaderIndex
from broker.schema.errors import BoundReached, PreconditionFailed

MATCHES = ("all", "any", "all-with-x", "any-with-x")


class HeadersExchange(BoundExchange):
    type = "headers"
    by_key = False
    argument_cost = 650

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self.index = HeaderIndex()

    def check(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        if match not in MATCHES:
            raise PreconditionFailed(
                f"Invalid x-match field value {match!r}; "
                "expected all, any, all-with-x, or any-with-x"
            )
        cost = self.index.cost_with(binding)
        # Stored bindings may be dearer than a limit that was lowered: what adds nothing to them
        # passes.
        if cost > max(self.bounds.headers_comparisons, self.index.cost):
            raise BoundReached(
                f"a message could need {cost} comparisons at exchange '{self.name}', and at most "
                f"{self.bounds.headers_comparisons} are allowed (headers_comparisons_max): "
                "bindings with x-match=all need a header whose value few of them share"
            )

    def add(self, binding: Binding) -> None:
        self.index.add(binding)

    def remove(self, binding: Binding) -> None:
        self.index.remove(binding)

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        return self.index.match(headers)
