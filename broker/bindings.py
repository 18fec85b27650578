"""The bindings of a vhost, found by either of their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.queues.types import MessageQueue
from broker.routing.exchange import Binding, BoundExchange, Identity, identity

End = tuple[str, str]
"""What a binding leads to: `queue` or `exchange`, and a name."""


class Bindings:
    """Each exchange has those that go out from it; here are those that lead to a queue or an
    exchange. `exchanges` and `queues` are the vhost's own, by name: what is not there any more may
    have bindings left, which nobody sees and which go one by one (`broker.unbinding`)."""

    def __init__(
        self, exchanges: Mapping[str, BoundExchange], queues: Mapping[str, MessageQueue]
    ) -> None:
        self._exchanges = exchanges
        self._queues = queues
        self._to: dict[End, dict[tuple[str, Identity], Binding]] = {}
        self._picked: dict[End, dict[tuple[str, Identity], Binding]] = {}

    def add(self, binding: Binding) -> None:
        """Adds it where it is not there. Raises KeyError if its exchange is not."""
        exchange = self._exchanges[binding.source]
        if exchange.bind(binding):
            end, row = (binding.destination_type, binding.destination), identity(binding)
            self._to.setdefault(end, {})[binding.source, row] = binding
            if exchange.picks_one:
                self._picked.setdefault(end, {})[binding.source, row] = binding

    def remove(self, binding: Binding) -> BoundExchange | None:
        """The exchange it was removed from; None if it, or its exchange, is not there."""
        exchange = self._exchanges.get(binding.source)
        if exchange is None or not exchange.unbind(binding):
            return None
        self._drop(self._to, binding, identity(binding))
        if exchange.picks_one:
            self._drop(self._picked, binding, identity(binding))
        return exchange

    @staticmethod
    def _drop(
        table: dict[End, dict[tuple[str, Identity], Binding]], binding: Binding, row: Identity
    ) -> None:
        end = binding.destination_type, binding.destination
        rows = table.get(end)
        if rows is not None and rows.pop((binding.source, row), None) is not None and not rows:
            del table[end]

    def unpick(self, kind: str, name: str) -> Iterator[BoundExchange]:
        """Removes those of exchanges that pick one of their bindings for a message: they must not
        pick what leads nowhere. The exchanges they were of."""
        for binding in list(self._picked.get((kind, name), {}).values()):
            exchange = self.remove(binding)
            if exchange is not None:
                yield exchange

    def drop_to(self, kind: str, name: str) -> Iterator[BoundExchange | None]:
        """Removes those to a queue or an exchange that is gone, one a step. Its exchange, where it
        is there."""
        rows = self._to.get((kind, name))
        while rows:
            (source, _), binding = rows.popitem()
            if not rows:
                del self._to[kind, name]
            exchange = self._exchanges.get(source)
            if exchange is not None:
                exchange.unbind(binding)
            yield exchange

    def drop_from(self, gone: BoundExchange) -> Iterator[None]:
        """Removes those of an exchange that is gone, one a step."""
        while gone.bindings:
            row, binding = gone.bindings.popitem()
            self._drop(self._to, binding, row)
            if gone.picks_one:
                self._drop(self._picked, binding, row)
            yield

    def has_exchange(self, exchange: BoundExchange) -> bool:
        """Whether this exchange is there, and not another one of its name."""
        return self._exchanges.get(exchange.name) is exchange

    def drop_loose(self) -> Iterator[Binding]:
        """Removes those to queues and exchanges that are not there; which they were."""
        for kind, name in list(self._to):
            if self._is_there(kind, name):
                continue
            for binding in list(self._to[kind, name].values()):
                self.remove(binding)
                yield binding

    def _is_there(self, kind: str, name: str) -> bool:
        return name in (self._queues if kind == "queue" else self._exchanges)

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
                if destination_type in (None, kind) and self._is_there(kind, destination):
                    for binding in list(self._to.get((kind, destination), {}).values()):
                        if source in (None, binding.source) and binding.source in self._exchanges:
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
                if destination_type in (None, binding.destination_type) and self._is_there(
                    binding.destination_type, binding.destination
                ):
                    yield binding
