"""The bindings of a vhost, found by either of their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.queues.types import MessageQueue
from broker.routing.exchange import Binding, BoundExchange, Identity, identity


class Bindings:
    """Each exchange has those that go out from it; here are those that lead to a queue or an
    exchange. `exchanges` and `queues` are the vhost's own, by name."""

    def __init__(
        self, exchanges: Mapping[str, BoundExchange], queues: Mapping[str, MessageQueue]
    ) -> None:
        self._exchanges = exchanges
        self._queues = queues
        self._to: dict[tuple[str, str], dict[tuple[str, Identity], Binding]] = {}

    def add(self, binding: Binding) -> None:
        """Adds it where it is not there. Raises KeyError if its exchange is not."""
        if self._exchanges[binding.source].bind(binding):
            rows = self._to.setdefault((binding.destination_type, binding.destination), {})
            rows[binding.source, identity(binding)] = binding

    def remove(self, binding: Binding) -> BoundExchange | None:
        """The exchange it was removed from; None if it, or its exchange, is not there."""
        exchange = self._exchanges.get(binding.source)
        if exchange is None or not exchange.unbind(binding):
            return None
        key = (binding.destination_type, binding.destination)
        rows = self._to[key]
        del rows[binding.source, identity(binding)]
        if not rows:
            del self._to[key]
        return exchange

    def drop_loose(self) -> Iterator[Binding]:
        """Removes those to queues and exchanges that are not there; which they were."""
        for kind, name in list(self._to):
            if name in (self._queues if kind == "queue" else self._exchanges):
                continue
            for binding in self.to(kind, name):
                self._exchanges[binding.source].unbind(binding)
                yield binding
            del self._to[kind, name]

    def to(self, kind: str, name: str) -> list[Binding]:
        """Those that lead to a queue or an exchange."""
        return list(self._to.get((kind, name), {}).values())

    def is_durable(self, binding: Binding) -> bool:
        """Whether both ends are there and durable."""
        destination: Any = (
            self._queues if binding.destination_type == "queue" else self._exchanges
        ).get(binding.destination)
        source = self._exchanges.get(binding.source)
        return bool(source and source.durable and destination and destination.durable)

    def listed(
        self,
        source: str | None = None,
        destination: str | None = None,
        destination_type: str | None = None,
    ) -> Iterator[Binding]:
        """All bindings, those of a source, or those to a destination; with the implicit ones of the
        default exchange."""
        for queue in (
            self._queues if source in (None, "") and destination_type in (None, "queue") else ()
        ):
            if destination in (None, queue):
                yield Binding("", queue, "queue", queue, {})
        if destination is not None:
            for kind in ("queue", "exchange"):
                if destination_type in (None, kind):
                    for binding in self.to(kind, destination):
                        if source in (None, binding.source):
                            yield binding
            return
        exchanges = (
            list(self._exchanges.values())
            if source is None
            else [self._exchanges[source]]
            if source in self._exchanges
            else []
        )
        for exchange in exchanges:
            for binding in list(exchange.bindings.values()):
                if destination_type in (None, binding.destination_type):
                    yield binding
