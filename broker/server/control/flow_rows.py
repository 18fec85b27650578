"""Who publishes where and who takes from where: RabbitMQ's `incoming`, `outgoing`, `publishes` and
`deliveries`.

The counts are those of channels that are open: each counts by the route of its publishes
(`Channel.published_to`), and each consumer what it was given. A rate is the change since the
row was last requested, so that rows that are not requested cost nothing; the first time it is the
share of the rate of the whole.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from broker.server.control.views import View, channel_details, channel_name, name_of
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.wire.channel import Channel

FLOWS_MAX = 500
"""Rows of one such list: those with the highest counts."""

_MARKS_MAX = 10_000
_OLD_MS = 60_000
"""A count that was asked for longer ago says nothing of the rate of now."""


class _Mark(NamedTuple):
    at: int
    value: int
    rate: float


class Marks:
    """Counts as they were when they were asked for last."""

    def __init__(self) -> None:
        self._marks: OrderedDict[tuple[Any, ...], _Mark] = OrderedDict()

    def rate(self, key: tuple[Any, ...], at: int, count: int, estimate: float) -> float:
        """Change a second since the last call that was at least a second ago."""
        mark = self._marks.pop(key, None)
        if mark is None or at - mark.at > _OLD_MS or count < mark.value:
            mark = _Mark(at, count, estimate)
        elif at - mark.at >= 1000:
            mark = _Mark(at, count, round((count - mark.value) * 1000 / (at - mark.at), 3))
        self._marks[key] = mark
        while len(self._marks) > _MARKS_MAX:
            self._marks.popitem(last=False)
        return mark.rate


_marks: WeakKeyDictionary[Any, Marks] = WeakKeyDictionary()


class Flows:
    """The lists of one answer; `view` knows the broker and the rates of whole objects."""

    def __init__(self, view: View) -> None:
        self.broker = view.broker
        self.stats = view.stats
        self.now = view.now
        self.marks = _marks.setdefault(view.broker, Marks())

    async def into_queue(self, queue: MessageQueue) -> list[dict[str, Any]]:
        """By exchange, what was published and reached the queue."""
        counts: Counter[str] = Counter()
        pace = Pace()
        for _, (exchange, targets), count in self._routes(queue.vhost_name):
            if queue in targets:
                counts[exchange.name] += count
            await pace()
        whole = self._rate("queue", queue, ("publish",))
        return [
            {
                "exchange": {"name": name, "vhost": queue.vhost_name},
                "stats": self._stats(("in", queue, name), {"publish": count}, whole, counts),
            }
            for name, count in counts.most_common(FLOWS_MAX)
        ]

    async def of_exchange(
        self, vhost: str, exchange: BoundExchange
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """By channel, what was published to the exchange; by queue, what of it went there."""
        publishers: Counter[Any] = Counter()
        queues: Counter[Any] = Counter()
        pace = Pace()
        for channel, (target, reached), count in self._routes(vhost):
            if target is exchange:
                publishers[channel] += count
                for queue in reached:
                    # What holds messages back, or answers a request, is no queue of a vhost.
                    if hasattr(queue, "vhost_name") and not queue.deleted:
                        queues[queue] += count
            await pace()
        incoming = [
            {
                "channel_details": self._details(channel),
                "stats": self._stats(
                    ("to", channel, exchange.name),
                    {"publish": count},
                    self._rate("channel", channel, ("publish",)),
                    {"": channel.published},
                ),
            }
            for channel, count in publishers.most_common(FLOWS_MAX)
        ]
        whole = self._rate("exchange", exchange, ("publish_out",))
        outgoing = [
            {
                "queue": {"name": name_of(queue), "vhost": vhost},
                "stats": self._stats(
                    ("in", queue, exchange.name), {"publish": count}, whole, queues
                ),
            }
            for queue, count in queues.most_common(FLOWS_MAX)
        ]
        return incoming, outgoing

    def from_channel(self, channel: Channel) -> list[dict[str, Any]]:
        """By exchange, what the channel published."""
        counts: Counter[str] = Counter()
        for (exchange, _), count in channel.published_to().items():
            counts[exchange.name] += count
        vhost = name_of(channel.connection.vhost)
        whole = self._rate("channel", channel, ("publish",))
        return [
            {
                "exchange": {"name": name, "vhost": vhost},
                "stats": self._stats(("to", channel, name), {"publish": count}, whole, counts),
            }
            for name, count in counts.most_common(FLOWS_MAX)
        ]

    def deliveries(self, consumers: Iterable[Any], by: str) -> list[dict[str, Any]]:
        """What these consumers were given and acknowledged, by their `channel` or `queue`."""
        found: dict[Any, Counter[str]] = {}
        for consumer in consumers:
            counts = found.setdefault(getattr(consumer, by), Counter())
            counts["ack"] += consumer.acked
            counts["deliver" if consumer.ack_required else "deliver_no_ack"] += consumer.delivered
            counts["deliver_get"] += consumer.delivered
        rows: list[dict[str, Any]] = []
        most = sorted(found.items(), key=lambda item: -item[1]["deliver_get"])
        for thing, counts in most[:FLOWS_MAX]:
            names = ("ack", "deliver", "deliver_no_ack", "deliver_get")
            stats = self._stats(("out", by, thing), {name: counts[name] for name in names}, 0.0, {})
            if by == "channel":
                rows.append({"channel_details": self._details(thing), "stats": stats})
            else:
                queue = {"name": thing.name, "vhost": thing.vhost_name}
                rows.append({"queue": queue, "stats": stats})
        return rows

    def _details(self, channel: Channel) -> dict[str, Any]:
        return {**channel_details(channel), "node": self.broker.node_name}

    def _routes(self, vhost: str) -> Iterator[tuple[Any, tuple[Any, tuple[Any, ...]], int]]:
        """Channel, route and count of all that is published in a vhost."""
        for connection in list(self.broker.connections.values()):
            if name_of(connection.vhost) != vhost:
                continue
            for channel in list(connection.channels.values()):
                if channel.published:
                    for route, count in list(channel.published_to().items()):
                        yield channel, route, count

    def _stats(
        self, key: tuple[Any, ...], counts: dict[str, int], whole: float, parts: Any
    ) -> dict[str, Any]:
        stats: dict[str, Any] = {}
        total = sum(parts.values()) or 1
        # Names instead of objects, which must not live longer for this.
        named = tuple(_named(part) for part in key)
        for name, count in counts.items():
            estimate = round(whole * count / total, 3)
            stats[name] = count
            rate = self.marks.rate((*named, name), self.now, count, estimate)
            stats[f"{name}_details"] = {"rate": rate}
        return stats

    def _rate(self, kind: str, thing: Any, names: tuple[str, ...]) -> float:
        gauge = self.stats.gauge(kind, thing)
        return gauge.rate_of(names) if gauge is not None else 0.0


def _named(part: Any) -> Any:
    if isinstance(part, str):
        return part
    if hasattr(part, "vhost_name"):
        return part.vhost_name, part.name
    return channel_name(part)
