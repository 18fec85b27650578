"""The headers exchange: the binding's arguments against the message's headers (AMQP 0-9-1 section
3.1.3.4, with RabbitMQ's x-match).

`all` and `any` leave out keys that begin with `x-`; `all-with-x` and `any-with-x` compare them too.
A binding without a value (void) asks for the header's presence only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.errors import PreconditionFailed
from broker.routing.exchange import NO_PROPERTIES, Binding, BoundExchange

MATCHES = ("all", "any", "all-with-x", "any-with-x")


class HeadersExchange(BoundExchange):
    type = "headers"
    by_key = False

    def check(self, binding: Binding) -> None:
        match = binding.arguments.get("x-match", "all")
        if match not in MATCHES:
            raise PreconditionFailed(
                f"Invalid x-match field value {match!r}; "
                "expected all, any, all-with-x, or any-with-x"
            )

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
        return (binding for binding in self.bindings.values() if fits(binding.arguments, headers))


def fits(wanted: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Whether headers fulfil a binding's arguments."""
    match = wanted.get("x-match", "all")
    with_x = match.endswith("-with-x")
    found = (
        name in headers and (value is None or same(value, headers[name]))
        for name, value in wanted.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    )
    return any(found) if match.startswith("any") else all(found)


def same(one: Any, other: Any) -> bool:
    """Equality of field values: numbers by value, but a boolean is no number."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
