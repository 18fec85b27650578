"""The random exchange (RabbitMQ's plug-in type `x-random`): each message to one of the queues or
exchanges bound, all with the same chance. Routing keys do not matter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange


class RandomExchange(BoundExchange):
    """`choose(bindings)` picks one; a destination that is bound several times counts once."""

    type = "x-random"
    # Nothing about a message decides, so no route may be remembered.
    by_key = False
    picks_one = True

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self.choose: Callable[[Sequence[Binding]], Binding] = random.choice
        self._choices: list[Binding] | None = None

    def add(self, binding: Binding) -> None:
        self._choices = None

    def remove(self, binding: Binding) -> None:
        self._choices = None

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        if self._choices is None:
            ends = {(each.destination_type, each.destination): each for each in self._in_order()}
            self._choices = list(ends.values())
        if self._choices:
            yield self.choose(self._choices)

    def _in_order(self) -> Iterator[Binding]:
        return iter(self.bindings.values())


EXCHANGE = RandomExchange
