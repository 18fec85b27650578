"""The consistent hash exchange (`x-consistent-hash` of RabbitMQ and LavinMQ): each message to one
of the bound queues, the same one for the same key.

A binding's key is its weight. What is hashed is the routing key, or with `hash-header` (RabbitMQ)
or `x-hash-on` (LavinMQ) a header, or with `hash-property` a property; a message without it hashes
like an empty text. `x-algorithm` picks ring or jump (`broker.routing.hashing`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange
from broker.routing.hashing import Jump, Ring, Spread, hash_of
from broker.schema.errors import BoundReached, PreconditionFailed

ALGORITHMS: dict[str, type[Spread]] = {"ring": Ring, "jump": Jump}
PROPERTIES = ("correlation_id", "message_id", "timestamp")


class ConsistentHashExchange(BoundExchange):
    type = "x-consistent-hash"
    picks_one = True

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._header = self.arguments.get("hash-header", self.arguments.get("x-hash-on"))
        self._property = self.arguments.get("hash-property")
        self._spread = ALGORITHMS[self.arguments.get("x-algorithm", "ring")]()
        self.by_key = self._header is None and self._property is None

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        if sum(name in arguments for name in ("hash-header", "x-hash-on", "hash-property")) > 1:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        name = arguments.get("hash-property")
        if name is not None and name not in PROPERTIES:
            raise PreconditionFailed(
                f"Unsupported property: {name}; expected {', '.join(PROPERTIES)}"
            )

    def check(self, binding: Binding) -> None:
        key = binding.routing_key
        if not re.fullmatch(r"[+-]?\d+", key, re.ASCII):
            raise PreconditionFailed(f'The binding key must be an integer: <<"{key}">>')
        most = self._spread.weight_max
        # A key has at most 255 digits, so that reading it costs nothing.
        if int(key) < 1:
            raise PreconditionFailed("The binding key must be greater than 0")
        if int(key) > most:
            raise PreconditionFailed(
                f"The binding key is a weight and must not be greater than {most}: {key}"
            )
        together = self.bounds.hash_ring_weights
        if not self._spread.has_room(binding, int(key), together):
            raise BoundReached(
                f"The weights of all bindings of a ring must not be greater than {together} "
                "together (hash_ring_weights_max); smaller ones in the same proportions do the same"
            )

    def add(self, binding: Binding) -> None:
        self._spread.add(binding, int(binding.routing_key))

    def remove(self, binding: Binding) -> None:
        self._spread.remove(binding, int(binding.routing_key))

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        value: Any = routing_key
        if self._header is not None:
            value = headers.get(self._header, "")
        elif self._property is not None:
            value = properties.get(self._property, "")
        found = self._spread.find(hash_of(str(value)))
        if found is not None:
            yield found


EXCHANGE = ConsistentHashExchange
