"""From an exchange to its queues: exchange-to-exchange bindings, alternate exchanges, loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.kernel import clock
from broker.queues.types import MessageQueue
from broker.routing.exchange import NO_PROPERTIES, BoundExchange


class Routes:
    """Looks up routes among the exchanges and queues of one vhost."""

    def __init__(
        self, exchanges: dict[str, BoundExchange], queues: dict[str, MessageQueue]
    ) -> None:
        self.exchanges = exchanges
        self.queues = queues

    def is_by_key(self, exchange: BoundExchange, seen: set[str] | None = None) -> bool:
        """Whether the routing key alone decides, through exchange-to-exchange bindings and
        alternate exchanges too."""
        if not exchange.is_plain:
            return False
        return self.is_by_key_when_due(exchange, seen)

    def is_by_key_when_due(self, exchange: BoundExchange, seen: set[str] | None = None) -> bool:
        """The same for what the exchange does not hold back any more."""
        if not exchange.by_key:
            return False
        seen = seen if seen is not None else set()
        seen.add(exchange.name)
        followers = {
            binding.destination
            for binding in exchange.bindings.values()
            if binding.destination_type == "exchange"
        }
        if exchange.alternate is not None:
            followers.add(exchange.alternate)
        return all(
            self.is_by_key(self.exchanges[name], seen)
            for name in followers
            if name in self.exchanges and name not in seen
        )

    def publish(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        properties: Mapping[str, Any],
        listed: bytes,
    ) -> tuple[Any, ...]:
        """The same as `route` for a message that is published now, after the exchange's
        deduplication: a duplicate goes nowhere, and only what has a queue is remembered.
        `properties` are `listed` decoded."""
        headers = properties.get("headers", {})
        duplicates = exchange.duplicates
        if duplicates is None:
            return self.route(exchange, routing_keys, headers, properties)
        identity = duplicates.identity(listed)
        if identity is not None and duplicates.drops(identity):
            targets: tuple[Any, ...] = duplicates.targets
            return targets
        targets = self.route(exchange, routing_keys, headers, properties)
        if targets and identity is not None:
            duplicates.remember(identity, listed, clock.now())
        return targets

    def route(
        self,
        exchange: BoundExchange,
        routing_keys: list[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> tuple[MessageQueue, ...]:
        """The queues that a message published to the exchange with these keys reaches, each
        once. `properties` are decoded; of them only a consistent hash needs more than the
        headers."""
        found: dict[MessageQueue, None] = {}
        seen: set[str] = set()
        for routing_key in routing_keys:
            seen = set()
            self._follow(exchange, routing_key, headers, properties, found, seen)
        return tuple(found)

    def _follow(
        self,
        exchange: BoundExchange,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any],
        found: dict[MessageQueue, None],
        seen: set[str],
    ) -> bool:
        """Adds the queues behind an exchange. True if there was any, also one that was found
        before."""
        if exchange.name in seen:
            return False
        seen.add(exchange.name)
        if not exchange.name:
            queue = self.queues.get(routing_key)
            if queue is not None:
                found[queue] = None
            return queue is not None
        if exchange.holds(headers):
            found[exchange.holding] = None
            return True
        any_queue = False
        for binding in list(exchange.match(routing_key, headers, properties)):
            if binding.destination_type == "queue":
                found[self.queues[binding.destination]] = None
                any_queue = True
            else:
                any_queue |= self._follow(
                    self.exchanges[binding.destination],
                    routing_key,
                    headers,
                    properties,
                    found,
                    seen,
                )
        if not any_queue and exchange.alternate is not None:
            alternate = self.exchanges.get(exchange.alternate)
            if alternate is not None:
                any_queue = self._follow(alternate, routing_key, headers, properties, found, seen)
        return any_queue
