"""The bindings of a vhost, found by either of their ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from broker.kernel.wide_dict import WideDict
from broker.queues.types import MessageQueue
from broker.routing.binding import Binding
from broker.routing.exchange import BoundExchange
from broker.vhosts.argument_memory import ArgumentMemory, binding_memory

End = tuple[str, str]
"""What a binding leads to: `queue` or `exchange`, and a name."""


Rows: TypeAlias = "dict[Binding, Binding] | WideDict[Binding, Binding]"

WIDE = 1024
"""From this number on, the bindings of one end are in a `WideDict`: a dict would grow slowly."""


class Bindings:
    """Each exchange has those that go out from it; here are those that lead to a queue or an
    exchange. `exchanges` and `queues` are the vhost's own, by name; `memory` counts the arguments.

    Those to a deleted queue or exchange are `leaving`: exchanges still have them, they are not
    shown, and they are removed one by one (`broker.vhosts.unbinding`). The name may be used again
    meanwhile, and deleted again: what leaves then is kept beside what leaves already, since to put
    40,000 together takes 65 ms.
    """

    def __init__(
        self,
        exchanges: Mapping[str, BoundExchange],
        queues: WideDict[str, MessageQueue],
        memory: ArgumentMemory,
    ) -> None:
        self._exchanges = exchanges
        self._queues = queues
        self._memory = memory
        self._to: dict[End, Rows] = {}
        self._picked: dict[End, Rows] = {}
        self.leaving: dict[End, list[Rows]] = {}
        """Rows of each deletion, of which other bindings may have taken the place meanwhile."""
        self.count = 0
        """How many exchanges have, those that leave included."""

    def add(self, binding: Binding) -> None:
        """Adds it where it is not there. Raises KeyError if its exchange is not there."""
        exchange = self._exchanges[binding.source]
        if self.leaving:
            current = exchange.bindings.get(binding)
            if current is not None and self.is_leaving(current):
                exchange.unbind(current)
                self._uncount(current, exchange)
        if exchange.bind(binding):
            self.count += 1
            if binding.arguments:
                self._memory.taken += binding_memory(binding, exchange)
            end = (binding.destination_type, binding.destination)
            rows = self._to.setdefault(end, {})
            rows[binding] = binding
            if len(rows) == WIDE and isinstance(rows, dict):
                self._to[end] = WideDict(rows)
            if exchange.picks_one:
                self._picked.setdefault(end, {})[binding] = binding

    def has(self, binding: Binding) -> bool:
        """Whether there is such a one."""
        exchange = self._exchanges.get(binding.source)
        current = exchange.bindings.get(binding) if exchange is not None else None
        return current is not None and not self.is_leaving(current)

    def is_leaving(self, binding: Binding) -> bool:
        """Whether this binding of an exchange leads to a deleted queue or exchange."""
        if not self.leaving:
            return False
        rows = self._to.get((binding.destination_type, binding.destination))
        return rows is None or rows.get(binding) is not binding

    def remove(self, binding: Binding) -> BoundExchange | None:
        """The exchange it was removed from; None if it, or its exchange, is not there."""
        if not self.has(binding):
            return None
        exchange = self._exchanges[binding.source]
        found = exchange.bindings[binding]
        exchange.unbind(found)
        self._uncount(found, exchange)
        _drop(self._to, found)
        if exchange.picks_one:
            _drop(self._picked, found)
        return exchange

    # -- deleted queues and exchanges --------------------------------------------------------------

    def leave(self, kind: str, name: str) -> Iterator[BoundExchange]:
        """A queue or an exchange is gone, and its bindings with it. Those of exchanges that pick
        one for a message are removed here: they must not pick what leads nowhere. The exchanges
        those were of."""
        for binding in list(self._picked.get((kind, name), {}).values()):
            exchange = self.remove(binding)
            if exchange is not None:
                yield exchange
        rows = self._to.pop((kind, name), None)
        if rows:
            self.leaving.setdefault((kind, name), []).append(rows)

    def drop_to(self, kind: str, name: str) -> Iterator[BoundExchange | None]:
        """Removes those to a deleted queue or exchange, one a step. Its exchange, where it
        is there."""
        while deletions := self.leaving.get((kind, name)):
            _, binding = deletions[-1].popitem()
            if not deletions[-1]:
                deletions.pop()
            if not deletions:
                del self.leaving[kind, name]
            exchange = self._exchanges.get(binding.source)
            # Another exchange may have this name now.
            if exchange is not None and exchange.bindings.get(binding) is binding:
                exchange.unbind(binding)
                self._uncount(binding, exchange)
            yield exchange

    def drop_from(self, gone: BoundExchange) -> Iterator[None]:
        """Removes those of a deleted exchange, one a step."""
        while gone.bindings:
            _, binding = gone.bindings.popitem()
            # A topic exchange's tree of 100,000 patterns takes 30 ms to be freed at once.
            gone.remove(binding)
            self._uncount(binding, gone)
            for table in (self._to, self._picked):
                _drop(table, binding)
            yield

    def _uncount(self, binding: Binding, exchange: BoundExchange) -> None:
        """An exchange has it no more."""
        self.count -= 1
        self._memory.taken -= binding_memory(binding, exchange)

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
                if destination_type in (None, kind):
                    for binding in list(self._to.get((kind, destination), {}).values()):
                        exchange = self._exchanges.get(binding.source)
                        if (
                            source in (None, binding.source)
                            and exchange is not None
                            and exchange.bindings.get(binding) is binding
                        ):
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
                if destination_type in (None, binding.destination_type) and not self.is_leaving(
                    binding
                ):
                    yield binding


def _drop(table: dict[End, Rows], binding: Binding) -> None:
    """Takes this binding, and not another one in its place, out of a table by ends."""
    end = binding.destination_type, binding.destination
    rows = table.get(end)
    if rows is not None and rows.get(binding) is binding:
        del rows[binding]
        if not rows:
            del table[end]
