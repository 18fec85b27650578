"""The sampler: compares all objects with the last look, adds up, keeps what charts and lists show.

The server calls `sample` once a second and steps the generator between turns of its loop; one step
takes well under a millisecond. Every object is compared in C (`broker.stats.scan`); only those that
changed cost more. Totals are sums of differences, so they never go down when an object goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from broker.kernel.reached import Reached
from broker.kernel.through import Through
from broker.stats.churn import Churn
from broker.stats.ended import Ended
from broker.stats.gauge import Gauge
from broker.stats.gauges import QUEUE_COUNTERS
from broker.stats.scan import Sums, scan, scan_connections, watch
from broker.stats.series import GLOBAL_TIERS, VHOST_TIERS, Series

if TYPE_CHECKING:
    from broker.kernel.wide_dict import WideDict
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection


class SampledVHost(Protocol):
    """A virtual host, as far as samples are taken of it."""

    @property
    def name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def queues(self) -> WideDict[str, MessageQueue]: ...
    @property
    def exchanges(self) -> Mapping[str, BoundExchange]: ...


class Sampled(Protocol):
    """The broker, as far as samples are taken of it."""

    @property
    def vhosts(self) -> Mapping[str, SampledVHost]: ...
    @property
    def connections(self) -> Mapping[int, Connection]: ...


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

WANTED: dict[str, frozenset[str]] = {
    # A message counts as published once, by its channel, however many queues it went to.
    "queue": frozenset(TAKING),
    "exchange": frozenset(),
    "channel": frozenset(PUBLISHING),
    "connection": frozenset(("recv_oct", "send_oct")),
}
"""Which counters of each kind of object go into the totals."""

_OBJECTS_PER_STEP = 100
_CONNECTIONS_PER_STEP = 100
_VHOSTS_PER_STEP = 20
_HISTORIES_MAX = 1_000


class Totals:
    """Counters and levels of the node or of one vhost, and their history."""

    def __init__(self, tiers: Iterable[tuple[int, int]]) -> None:
        tiers = self._tiers = tuple(tiers)
        self.counters: dict[str, float] = dict.fromkeys(NODE_COUNTERS, 0)
        self.levels: dict[str, float] = dict.fromkeys(NODE_LEVELS, 0)
        self.series = Series(NODE_COUNTERS, NODE_LEVELS, tiers)
        self._rows: list[tuple[int, dict[str, float]]] = []
        self._stands_still = True

    def reset(self) -> None:
        """Counts from zero again, and forgets the history; levels are what they are."""
        self.counters.update(dict.fromkeys(self.counters, 0))
        self.series = Series(NODE_COUNTERS, NODE_LEVELS, self._tiers)
        self._rows.clear()
        self._stands_still = True

    def close(self, at: int) -> None:
        """Ends a second: the row of now goes into the history and into the rates."""
        row = {**self.counters, **self.levels}
        self.series.add(at, list(row.values()))
        self._rows.append((at, row))
        while len(self._rows) > 2 and self._rows[1][0] <= at - 5_000:
            del self._rows[0]
        self._stands_still = self._rows[0][1] == row

    def rate(self, name: str) -> float:
        """Change per second of a counter or a level over the last five seconds."""
        if self._stands_still:
            return 0.0
        (old_at, old), (new_at, new) = self._rows[0], self._rows[-1]
        return round((new[name] - old[name]) * 1000 / max(1, new_at - old_at), 3)


class Stats:
    """Everything measured since the start.

    The broker tells what begins and ends (`queue_deleted`, ...; of clients `churn`): an object's
    last counts are taken when it goes. `publish_from_api` counts what no channel published.
    """

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms
        self.node = Totals(GLOBAL_TIERS)
        self.ended = Ended()
        self.vhosts: dict[str, Totals] = {}
        self.sampled_at = 0
        """When the last sample began, ms since 1970."""
        self.rounds = 0
        """How many samples are complete; each makes new rates."""
        self.looked = self.changed = 0
        """Objects that the last sample compared, and those of which it took a row."""
        self._levels: dict[str, dict[str, float]] = {}
        self._histories: dict[Any, Gauge] = {}
        """Objects with a history; those that were looked at longest ago come first."""
        self.churn = Churn(self.node, self.vhosts, self.vhost, WANTED, self._histories, self.ended)
        """Adds to the totals, also what begins and ends between samples."""
        self.keeps_steps = False
        """Whether touched objects are listed for a caller that takes the list at intervals."""
        self._touched: dict[tuple[str, str], Reached] = {}

    # What the broker tells.

    def queue_declared(self, vhost: str, created: bool) -> None:
        self.churn.happened(vhost, "queue_declared")
        if created:
            self.churn.happened(vhost, "queue_created")

    def queue_deleted(self, queue: MessageQueue) -> None:
        self.churn.end("queue", queue, queue.vhost_name)
        self.ended.add_queue(queue)
        self.churn.happened(queue.vhost_name, "queue_deleted")

    def exchange_deleted(self, vhost: str, exchange: BoundExchange) -> None:
        self.churn.end("exchange", exchange, vhost)

    def vhost_deleted(self, vhost: str) -> None:
        self.vhosts.pop(vhost, None)

    def publish_from_api(self, vhost: str, routed: bool) -> None:
        """Counts a message that came through the control socket."""
        self.churn.happened(vhost, "publish")
        if not routed:
            self.churn.happened(vhost, "drop_unroutable")

    def reset(self) -> None:
        """Starts the totals of the node and of its vhosts anew."""
        for totals in (self.node, *self.vhosts.values()):
            totals.reset()

    # What others ask.

    def gauge(self, kind: str, thing: Any) -> Gauge | None:
        """What is known of an object; None if it never had traffic."""
        found: Gauge | None = thing.gauge
        return found

    def vhost(self, name: str) -> Totals:
        """Totals of a vhost, zero if nothing happened in it yet."""
        totals = self.vhosts.get(name)
        if totals is None:
            totals = self.vhosts[name] = Totals(VHOST_TIERS)
        return totals

    def watch(self, kind: str, thing: Any) -> Series:
        """The history of an object that is shown; it begins now if there was none."""
        sums = Sums()
        gauge = watch(kind, thing, self._clock_ms(), sums)
        self.churn.add_up(kind, sums, _vhost_name(kind, thing))
        return self._keep_history(thing, gauge)

    def take_touched(self) -> Iterator[tuple[str, str, Any] | None]:
        """Kind, vhost and object of what changed since the last call, and None in the place of what
        has ended since: there may be very many, of which each is let go of in its turn."""
        touched, self._touched = self._touched, {}
        for (kind, vhost), things in touched.items():
            for thing in things:
                yield None if thing.gauge.ended else (kind, vhost, thing)
                things.let_some_go(1)

    def sample(self, broker: Sampled) -> Iterator[None]:
        """One sample of everything, as a generator of short steps."""
        at, before = self._clock_ms(), self.sampled_at
        self.looked = self.changed = 0
        self._levels = {}
        for vhost in list(broker.vhosts.values()):
            yield from self._sample_vhost(vhost, at, before)
        yield from self._sample_connections(broker, at, before)
        yield from self._close_totals(broker, at)
        self.sampled_at = at
        self.rounds += 1

    def _sample_vhost(self, vhost: SampledVHost, at: int, before: int) -> Iterator[None]:
        levels = self._levels[vhost.name] = dict.fromkeys((*QUEUE_TOTALS, *OBJECT_TOTALS), 0.0)
        levels["exchanges"] = len(vhost.exchanges)
        levels["queues"] = len(vhost.queues)
        for kind, things in (
            ("queue", Through(vhost.queues.values())),
            ("exchange", Through(vhost.exchanges.values())),
        ):
            sums = Sums()
            some: list[Any] = []
            start = 0
            while start < len(some) or things:
                if start == len(some):
                    some, start = things.piece(_OBJECTS_PER_STEP), 0
                lively: list[Any] = []
                touched: list[Any] = []
                start = scan(kind, some, start, at, before, sums, lively, touched)
                if self.keeps_steps:
                    self._touch(kind, vhost.name, touched)
                for thing in lively:
                    if not self._has_room():
                        break
                    self._keep_history(thing, thing.gauge)
                self.churn.add_up(kind, sums, vhost.name)
                yield
            if kind == "queue":
                levels.update(zip(QUEUE_TOTALS, sums.held, strict=True))
                levels["consumers"] = sums.consumers
            self._count(sums)

    def _sample_connections(self, broker: Sampled, at: int, before: int) -> Iterator[None]:
        sums, of_channels = Sums(), Sums()
        things = Through(broker.connections.values())
        while things:
            some, start = things.piece(_CONNECTIONS_PER_STEP), 0
            while start < len(some):
                vhost, begun = some[start].vhost, start
                start, channels = scan_connections(
                    some, start, vhost, at, before, sums, of_channels
                )
                if start == begun:
                    yield from self._sample_wide(broker, some[start], at, before)
                    start += 1
                    continue
                self._add_levels(vhost.name, start - begun, channels)
                self.churn.add_up("connection", sums, vhost.name)
                self.churn.add_up("channel", of_channels, vhost.name)
                if start - begun + channels >= _OBJECTS_PER_STEP:
                    yield
            yield
        self._count(sums)
        self._count(of_channels)

    def _sample_wide(
        self, broker: Sampled, connection: Connection, at: int, before: int
    ) -> Iterator[None]:
        """A connection may have as many channels as many connections have; and if it ends
        meanwhile, each is freed as it is let go of here."""
        if connection.id not in broker.connections:
            return
        vhost, seen = _vhost_of_connection(connection), 0
        channels = list(connection.channels.values())
        self._add_levels(vhost, 1, len(channels))
        for kind, things in (("connection", [connection]), ("channel", channels)):
            while things:
                some, start, sums = things[-_OBJECTS_PER_STEP:], 0, Sums()
                del things[-_OBJECTS_PER_STEP:]
                while start < len(some):
                    begun = start
                    start = scan(kind, some, start, at, before, sums)
                    seen += start - begun
                    self.churn.add_up(kind, sums, vhost)
                    if seen >= _OBJECTS_PER_STEP:
                        seen = 0
                        yield
                self._count(sums)

    def _add_levels(self, vhost: str, connections: int, channels: int) -> None:
        levels = self._levels.get(vhost)
        if levels is not None:
            levels["connections"] += connections
            levels["channels"] += channels

    def _touch(self, kind: str, vhost: str, touched: list[Any]) -> None:
        if touched:
            known = self._touched.setdefault((kind, vhost), Reached())
            for thing in touched:
                known.add(thing)

    def _count(self, sums: Sums) -> None:
        self.looked += sums.looked
        self.changed += sums.changed

    def _close_totals(self, broker: Sampled, at: int) -> Iterator[None]:
        """Spreads the levels over the totals and ends their second."""
        total = dict.fromkeys((*QUEUE_TOTALS, *OBJECT_TOTALS), 0.0)
        for place, (name, levels) in enumerate(self._levels.items(), 1):
            if name in broker.vhosts:
                totals = self.vhost(name)
                totals.levels.update(levels)
                totals.close(at)
                for level, value in levels.items():
                    total[level] += value
            if place % _VHOSTS_PER_STEP == 0:
                yield
        total["connections"] = len(broker.connections)
        self.node.levels.update(total)
        self.node.close(at)
        for name in self.vhosts.keys() - broker.vhosts.keys():
            del self.vhosts[name]
        yield

    def _has_room(self) -> bool:
        """Whether one more object may have a history; the one that was looked at longest ago gives
        its own up if it is quiet."""
        if len(self._histories) < _HISTORIES_MAX:
            return True
        oldest, gauge = next(iter(self._histories.items()))
        del self._histories[oldest]
        if gauge.is_quiet:
            gauge.drop_history()
            return True
        self._histories[oldest] = gauge
        return False

    def _keep_history(self, thing: Any, gauge: Gauge) -> Series:
        self._histories.pop(thing, None)
        self._histories[thing] = gauge
        history = gauge.keep_history(self.sampled_at)
        while len(self._histories) > _HISTORIES_MAX:
            oldest = next(iter(self._histories))
            self._histories.pop(oldest).drop_history()
        return history


def _vhost_of_connection(connection: Connection) -> str:
    return connection.vhost.name if connection.vhost is not None else ""


def _vhost_of_channel(channel: Channel) -> str:
    vhost = channel.connection.vhost
    return vhost.name if vhost is not None else ""


def _vhost_name(kind: str, thing: Any) -> str:
    if kind == "queue":
        return str(thing.vhost_name)
    if kind == "channel":
        return _vhost_of_channel(thing)
    return _vhost_of_connection(thing) if kind == "connection" else ""
