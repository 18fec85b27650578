"""From an exchange to its queues: exchange-to-exchange bindings, alternate exchanges, loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.kernel import clock
from broker.kernel.reached import Reached
from broker.kernel.steps import Found, Steps, complete
from broker.kernel.through import Through
from broker.kernel.wide_dict import WideDict
from broker.queues.types import MessageQueue
from broker.routing.binding import Binding
from broker.routing.exchange import NO_PROPERTIES, BoundExchange
from broker.schema.message_history import HISTORY
from broker.vhosts.bindings import Bindings

FOLLOWED_AT_ONCE = 128
"""Bindings that are followed in a step, 0.3 microseconds each, and several where the caches hold
none of their queues. A message may have 100,000."""


class Routes:
    """Looks up routes among the exchanges and queues of one vhost."""

    def __init__(
        self,
        exchanges: dict[str, BoundExchange],
        queues: WideDict[str, MessageQueue],
        bindings: Bindings,
    ) -> None:
        self.exchanges = exchanges
        self.queues = queues
        self._bindings = bindings

    def is_by_key(self, exchange: BoundExchange) -> bool:
        """Whether the routing key alone decides, through exchange-to-exchange bindings and
        alternate exchanges too."""
        return exchange.is_plain and self.is_by_key_when_due(exchange)

    def is_by_key_when_due(self, exchange: BoundExchange) -> bool:
        """The same for what the exchange does not hold back any more."""
        if not exchange.by_key:
            return False
        if not exchange.followers and exchange.alternate is None:
            return True
        seen = {exchange.name}
        ahead = [exchange]
        while ahead:
            each = ahead.pop()
            for name in (*each.followers, each.alternate):
                follower = self.exchanges.get(name) if name is not None else None
                if follower is None or name in seen:
                    continue
                if not (follower.is_plain and follower.by_key):
                    return False
                seen.add(follower.name)
                ahead.append(follower)
        return True

    def publish(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        properties: Mapping[str, Any],
        listed: bytes,
    ) -> Found:
        """All steps of `publishing` at once."""
        return complete(self.publishing(exchange, routing_keys, properties, listed))

    def publishing(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        properties: Mapping[str, Any],
        listed: bytes,
    ) -> Steps:
        """The same as `routing` for a message that is published now, after the exchange's
        deduplication: a duplicate goes nowhere, and only what has a queue is remembered.
        `properties` are `listed` decoded."""
        headers = properties.get("headers", {})
        duplicates = exchange.duplicates
        if duplicates is None:
            return (yield from self.routing(exchange, routing_keys, headers, properties))
        identity = duplicates.identity(listed)
        if identity is not None and duplicates.drops(identity):
            known: Found = duplicates.targets
            return known
        targets = yield from self.routing(exchange, routing_keys, headers, properties)
        if targets and identity is not None:
            duplicates.remember(identity, listed, clock.now())
        return targets

    def route(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
        *,
        due: bool = False,
    ) -> Found:
        """All steps of `routing` at once."""
        return complete(self.routing(exchange, routing_keys, headers, properties, due=due))

    def routing(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
        *,
        due: bool = False,
    ) -> Steps:
        """The queues that a message published to the exchange with these keys reaches, each
        once. `properties` are decoded; of them only a consistent hash needs more than the
        headers. `due`: the exchange has held it back and does not again, whatever it asks for.
        What others bind and unbind between the steps may count or not."""
        reached = Reached()
        yield from self._follow(exchange, routing_keys, headers, properties, reached, due)
        return reached.found()

    def _follow(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any],
        found: Reached,
        due: bool,
    ) -> Iterator[None]:
        """Adds the queues behind an exchange, each exchange once and with all keys. Whether there
        was any, also one that was found before, decides about alternate exchanges."""
        seen = {exchange.name}
        visits: list[_Visit] = []
        ahead: BoundExchange | None = exchange
        followed = 0
        while True:
            any_queue = False
            if ahead is not None:
                if not ahead.name:
                    for routing_key in routing_keys:
                        queue = self.queues.get(routing_key)
                        # The history is written by the broker alone.
                        if queue is not None and routing_key != HISTORY:
                            found.add(queue)
                            any_queue = True
                elif not (due and ahead is exchange) and ahead.holds(headers):
                    found.add(ahead.holding)
                    any_queue = True
                else:
                    # As of now, whatever is bound between the steps.
                    bindings = Through(ahead.match_all(routing_keys, headers, properties))
                    visits.append(_Visit(ahead, bindings))
            elif visits:
                any_queue = visits.pop().any_queue
            ahead = None
            if not visits:
                return
            visit = visits[-1]
            visit.any_queue |= any_queue
            for binding in visit.bindings:
                followed += 1
                if followed % FOLLOWED_AT_ONCE == 0:
                    yield
                # In a vhost that is being deleted the other end may be gone before the binding.
                if self._bindings.leaving and self._bindings.is_leaving(binding):
                    continue
                if binding.destination_type == "queue":
                    queue = self.queues.get(binding.destination)
                    if queue is not None:
                        found.add(queue)
                        visit.any_queue = True
                elif binding.destination not in seen:
                    ahead = self.exchanges.get(binding.destination)
                    if ahead is not None:
                        break
            else:
                if not visit.any_queue:
                    ahead = self._alternate(visit, seen)
            if ahead is not None:
                seen.add(ahead.name)

    def _alternate(self, visit: _Visit, seen: set[str]) -> BoundExchange | None:
        """Where a message goes that found no queue, if it was not there yet."""
        name = visit.exchange.alternate
        return self.exchanges.get(name) if name is not None and name not in seen else None


class _Visit:
    """An exchange whose bindings are being followed. No function calls itself for the next one:
    a chain of exchanges may be of any length."""

    __slots__ = ("any_queue", "bindings", "exchange")

    def __init__(self, exchange: BoundExchange, bindings: Iterator[Binding]) -> None:
        self.exchange = exchange
        self.bindings = bindings
        self.any_queue = False
