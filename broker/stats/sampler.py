"""The one sampler: goes over all objects, adds up, and keeps what charts and lists show.

The server calls `sample` once a second and steps the generator between turns of its loop; one step
takes well under a millisecond. An object that never had traffic costs a look and no memory. Totals
are sums of differences, so they never go down when an object goes.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from broker.stats.gauges import KINDS, QUEUE_COUNTERS, Gauge, row_of
from broker.stats.series import GLOBAL_TIERS, VHOST_TIERS, Series

CHURN = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)
PUBLISHING = ("publish", "confirm", "return_unroutable", "drop_unroutable")
TAKING = tuple(name for name in QUEUE_COUNTERS if name not in ("publish", "confirm"))
MESSAGE_COUNTERS = (*PUBLISHING, *TAKING)
NODE_COUNTERS = (*MESSAGE_COUNTERS, "recv_oct", "send_oct", *CHURN)
QUEUE_TOTALS = ("messages_ready", "messages_unacknowledged", "message_bytes")
OBJECT_TOTALS = ("connections", "channels", "exchanges", "queues", "consumers")
WAIT_LEVELS = ("sync_p50_ms", "sync_p99_ms", "confirm_p50_ms", "confirm_p99_ms")
NODE_LEVELS = (*QUEUE_TOTALS, *OBJECT_TOTALS, "mem_used", "disk_free", "fd_used", *WAIT_LEVELS)

_OBJECTS_PER_STEP = 100
_MANY_OBJECTS = 5_000
_MANY_EVERY_S = 5
_HISTORIES_MAX = 1_000


class Totals:
    """Counters and levels of the node or of one vhost, and their history."""

    def __init__(self, tiers: Iterable[tuple[int, int]]) -> None:
        self.counters: dict[str, float] = dict.fromkeys(NODE_COUNTERS, 0)
        self.levels: dict[str, float] = dict.fromkeys(NODE_LEVELS, 0)
        self.series = Series(NODE_COUNTERS, NODE_LEVELS, tiers)
        self._rows: list[tuple[int, dict[str, float]]] = []

    def add(self, names: Iterable[str], change: Iterable[float]) -> None:
        counters = self.counters
        for name, value in zip(names, change, strict=False):
            if value and name in counters:
                counters[name] += value

    def close(self, at: int) -> None:
        """Ends a second: the row of now goes into the history and into the rates."""
        row = {**self.counters, **self.levels}
        self.series.add(at, list(row.values()))
        self._rows.append((at, row))
        while len(self._rows) > 2 and self._rows[1][0] <= at - 5_000:
            del self._rows[0]

    def rate(self, name: str) -> float:
        """Change per second of a counter or a level over the last five seconds."""
        if len(self._rows) < 2:
            return 0.0
        (old_at, old), (new_at, new) = self._rows[0], self._rows[-1]
        return round((new[name] - old[name]) * 1000 / max(1, new_at - old_at), 3)


class Stats:
    """Everything measured since the start.

    The broker tells what begins and ends (`connection_opened`, `queue_deleted`, ...): an object's
    last counts are taken when it goes. `publish_from_api` counts what no channel published.
    """

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms
        self.node = Totals(GLOBAL_TIERS)
        self.vhosts: dict[str, Totals] = {}
        self.sampled_at = 0
        """When the last sample began, ms since 1970."""
        self.rounds = 0
        """How many samples are complete; each makes new rates."""
        self._gauges: dict[str, dict[Any, Gauge]] = {kind: {} for kind in KINDS}
        self._levels: dict[str, dict[str, float]] = {}
        self._histories: dict[Any, Gauge] = {}
        self._next_large = 0

    # What the broker tells.

    def connection_opened(self, connection: Any) -> None:
        self._happened(_vhost_of_connection(connection), "connection_created")

    def connection_closed(self, connection: Any) -> None:
        self._end("connection", connection, _vhost_of_connection(connection))
        self._happened(_vhost_of_connection(connection), "connection_closed")

    def channel_opened(self, channel: Any) -> None:
        self._happened(_vhost_of_channel(channel), "channel_created")

    def channel_closed(self, channel: Any) -> None:
        self._end("channel", channel, _vhost_of_channel(channel))
        self._happened(_vhost_of_channel(channel), "channel_closed")

    def queue_declared(self, vhost: str, created: bool) -> None:
        self._happened(vhost, "queue_declared")
        if created:
            self._happened(vhost, "queue_created")

    def queue_deleted(self, queue: Any) -> None:
        self._end("queue", queue, queue.vhost_name)
        self._histories.pop(queue, None)
        self._happened(queue.vhost_name, "queue_deleted")

    def exchange_deleted(self, vhost: str, exchange: Any) -> None:
        self._end("exchange", exchange, vhost)

    def vhost_deleted(self, vhost: str) -> None:
        self.vhosts.pop(vhost, None)

    def publish_from_api(self, vhost: str, routed: bool) -> None:
        """Counts a message that came through the control socket."""
        self._happened(vhost, "publish")
        if not routed:
            self._happened(vhost, "drop_unroutable")

    # What others ask.

    def gauge(self, kind: str, thing: Any) -> Gauge | None:
        """What is known of an object; None if it never had traffic."""
        return self._gauges[kind].get(thing)

    def vhost(self, name: str) -> Totals:
        """Totals of a vhost, zero if nothing happened in it yet."""
        totals = self.vhosts.get(name)
        if totals is None:
            totals = self.vhosts[name] = Totals(VHOST_TIERS)
        return totals

    def watch(self, kind: str, thing: Any) -> Series:
        """The history of an object that somebody looks at; it begins now if there was none."""
        gauge = self._gauges[kind].get(thing)
        if gauge is None:
            at = self._clock_ms()
            gauge = self._gauges[kind][thing] = Gauge(kind, at)
            gauge.add(at, self._row(kind, thing))
        return self._keep_history(kind, thing, gauge)

    def sample(self, broker: Any) -> Iterator[None]:
        """One sample of everything, as a generator of short steps."""
        at = self._clock_ms()
        count = sum(len(vhost.queues) for vhost in broker.vhosts.values())
        if count <= _MANY_OBJECTS or at >= self._next_large:
            self._next_large = at + _MANY_EVERY_S * 1000
            self._levels = {}
            for vhost in list(broker.vhosts.values()):
                yield from self._sample_vhost(vhost, at)
            yield from self._sample_connections(broker, at)
            self._spread_levels(broker)
            self._forget_the_gone(at)
        for totals in (self.node, *self.vhosts.values()):
            totals.close(at)
        self.sampled_at = at
        self.rounds += 1

    def _sample_vhost(self, vhost: Any, at: int) -> Iterator[None]:
        levels = self._levels[vhost.name] = dict.fromkeys((*QUEUE_TOTALS, *OBJECT_TOTALS), 0.0)
        levels["exchanges"] = len(vhost.exchanges)
        levels["queues"] = len(vhost.queues)
        for number, queue in enumerate(list(vhost.queues.values())):
            if number % _OBJECTS_PER_STEP == _OBJECTS_PER_STEP - 1:
                yield
            if vhost.queues.get(queue.name) is not queue:
                # Deleted since the sample began: its last counts are taken already.
                continue
            ready, unacked = queue.messages_ready, queue.messages_unacknowledged
            if ready or unacked:
                levels["messages_ready"] += ready
                levels["messages_unacknowledged"] += unacked
                levels["message_bytes"] += (
                    queue.message_bytes_ready + queue.message_bytes_unacknowledged
                )
            levels["consumers"] += queue.consumer_count
            gauge = self._visit("queue", queue, vhost.name, at)
            if gauge is not None:
                self._judge(queue, gauge, at)
        yield
        for number, exchange in enumerate(list(vhost.exchanges.values())):
            if number % _OBJECTS_PER_STEP == _OBJECTS_PER_STEP - 1:
                yield
            if vhost.exchanges.get(exchange.name) is exchange:
                self._visit("exchange", exchange, vhost.name, at)

    def _sample_connections(self, broker: Any, at: int) -> Iterator[None]:
        seen = 0
        for connection in list(broker.connections.values()):
            if connection.id not in broker.connections:
                continue
            vhost = _vhost_of_connection(connection)
            levels = self._levels.get(vhost)
            channels = list(connection.channels.values())
            if levels is not None:
                levels["connections"] += 1
                levels["channels"] += len(channels)
            self._visit("connection", connection, vhost, at)
            for channel in channels:
                gauge = self._visit("channel", channel, vhost, at)
                if gauge is None:
                    continue
                gauge.judge(at, channel.messages_unacknowledged, len(channel.consumers))
                if channel.oldest_unconfirmed != gauge.oldest_unconfirmed:
                    gauge.oldest_unconfirmed = channel.oldest_unconfirmed
                    gauge.unconfirmed_since = at
            seen += 1 + len(channels)
            if seen >= _OBJECTS_PER_STEP:
                seen = 0
                yield

    def _visit(self, kind: str, thing: Any, vhost: str, at: int) -> Gauge | None:
        row = self._row(kind, thing)
        gauges = self._gauges[kind]
        gauge = gauges.get(thing)
        if gauge is None:
            if not any(row):
                return None
            gauge = gauges[thing] = Gauge(kind, at)
            if self.sampled_at:
                # Nothing was counted yet at the last look, so there is a rate from the first on.
                counters = len(KINDS[kind][0])
                gauge.add(self.sampled_at, [0.0] * counters + row[counters:])
        self._take(kind, gauge, row, vhost)
        gauge.add(at, row)
        if gauge.history is None and kind in ("queue", "exchange") and not gauge.is_quiet:
            self._keep_history(kind, thing, gauge)
        return gauge

    def _take(self, kind: str, gauge: Gauge, row: list[float], vhost: str) -> None:
        """Adds what happened since the last look to the totals."""
        before = gauge.newest or [0.0] * len(row)
        if kind == "exchange" or array("d", row) == before:
            return
        names = KINDS[kind][0]
        # A message counts as published once, by its channel, however many queues it went to.
        wanted = PUBLISHING if kind == "channel" else TAKING if kind == "queue" else names
        change = [
            value - old if name in wanted else 0.0
            for name, value, old in zip(names, row, before, strict=False)
        ]
        self.node.add(names, change)
        self.vhost(vhost).add(names, change)

    def _end(self, kind: str, thing: Any, vhost: str) -> None:
        gauge = self._gauges[kind].pop(thing, None) or Gauge(kind)
        self._take(kind, gauge, self._row(kind, thing), vhost)

    def _judge(self, queue: Any, gauge: Gauge, at: int) -> None:
        gauge.judge(at, queue.messages_unacknowledged, queue.consumer_count)
        ready = gauge.rate("messages_ready")
        gauge.growth += (ready - gauge.growth) * 0.1

    def _spread_levels(self, broker: Any) -> None:
        total = dict.fromkeys((*QUEUE_TOTALS, *OBJECT_TOTALS), 0.0)
        for name, levels in self._levels.items():
            if name in broker.vhosts:
                self.vhost(name).levels.update(levels)
                for level, value in levels.items():
                    total[level] += value
        total["connections"] = len(broker.connections)
        self.node.levels.update(total)
        for name in self.vhosts.keys() - broker.vhosts.keys():
            del self.vhosts[name]

    def _forget_the_gone(self, at: int) -> None:
        for gauges in self._gauges.values():
            gone = [thing for thing, gauge in gauges.items() if gauge.is_older_than(at)]
            for thing in gone:
                del gauges[thing]
                self._histories.pop(thing, None)

    def _keep_history(self, kind: str, thing: Any, gauge: Gauge) -> Series:
        self._histories.pop(thing, None)
        self._histories[thing] = gauge
        history = gauge.keep_history(kind)
        while len(self._histories) > _HISTORIES_MAX:
            oldest = next(iter(self._histories))
            self._histories.pop(oldest).history = None
        return history

    def _happened(self, vhost: str, name: str) -> None:
        self.node.counters[name] += 1
        if vhost:
            self.vhost(vhost).counters[name] += 1

    @staticmethod
    def _row(kind: str, thing: Any) -> list[float]:
        counters = thing.counters() if kind in ("queue", "channel") else None
        return row_of(kind, thing, counters)


def _vhost_of_connection(connection: Any) -> str:
    vhost = connection.vhost
    name = getattr(vhost, "name", vhost)
    return name if isinstance(name, str) else ""


def _vhost_of_channel(channel: Any) -> str:
    return _vhost_of_connection(channel.connection)
