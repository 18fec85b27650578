"""What is wrong with queues, consumers and publishers, since when, and how much it weighs.

`ProblemWatch` looks at everything in slices: after a sample when a client asks, and every
half minute otherwise, so that it knows since when a state lasts. What it finds is kept by vhost
and, where it belongs to one user, by owner: rights are asked before anything is counted, cut or
sorted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log2
from typing import TYPE_CHECKING, Any

from broker.kernel.through import Through
from broker.kernel.wide_dict import WideDict
from broker.server.control import troubles
from broker.server.control.views import name_of
from broker.stats.gauges import DELIVERING

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.server.app import Broker
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

log = logging.getLogger(__name__)

MOVERS = 10
"""How many growing queues, and how many publishers, are shown at most."""

GROUP_FROM = 4
"""From this number on, problems of one kind and one order of magnitude in a vhost share a line."""

NAMES = 5
"""Things that a line of several problems names; no more of its problems are kept."""

_LOOK_EVERY_MS = 30_000
_STEP = 16
"""Queues or problems between two looks at the clock: about 50 µs."""

_SLICE_S = 0.0004
_DEAR_S = 0.02
_REST = 50
"""A search that took more than `_DEAR_S` of the processor is followed by a rest this many times as
long, so that searches never take more than 2 %."""

SEVERITY = {
    "refusing": "bad",
    "not served": "bad",
    "stuck": "bad",
    "unconfirmed": "warn",
    "paused": "warn",
    "at a limit": "warn",
    "growing": "warn",
    "redelivering": "warn",
}
_URGENCY = {"refusing": 4.0, "stuck": 4.0, "unconfirmed": 2.0, "at a limit": 2.0}
"""What fails now comes before what only waits."""

_AT_ONCE = frozenset({"refusing", "stuck", "unconfirmed", "paused"})
"""States that have had their time, or that a person made."""


@dataclass(slots=True, eq=False)
class Problem:
    """One thing that is wrong. `thing`: a queue, a consumer or a channel."""

    trouble: str
    kind: str
    thing: Any
    since: int
    """Ms since 1970."""
    depth: int
    growth: float
    weight: float = 0.0

    def weigh(self, now: int) -> None:
        """Depth, age and growth, each by its order of magnitude, so that none hides the others."""
        age_min = max(0, now - self.since) / 60_000
        weight = log2(2 + self.depth) * log2(2 + age_min) * log2(2 + max(0.0, self.growth))
        self.weight = _URGENCY.get(self.trouble, 1.0) * weight


@dataclass(slots=True)
class Line:
    """One line of the list: a problem, or several that are alike in one vhost, of which `NAMES` are
    kept, the worst first and the others in no order. To keep 100,000 would take memory, and freeing
    them a long turn."""

    problems: list[Problem]
    count: int
    least: int
    """Messages of the problem with the fewest, and of the one with the most."""
    most: int

    @classmethod
    def of(cls, problem: Problem) -> Line:
        """A line of one problem."""
        return cls([problem], 1, problem.depth, problem.depth)

    @property
    def weight(self) -> float:
        return self.problems[0].weight

    def add(self, problem: Problem) -> None:
        """Takes one more that is alike."""
        problems = self.problems
        self.count += 1
        if len(problems) < NAMES:
            problems.append(problem)
        if problem.weight > problems[0].weight:
            problems[0], problems[-1] = problem, problems[0]
        self.least = min(self.least, problem.depth)
        self.most = max(self.most, problem.depth)


@dataclass(slots=True)
class Share:
    """What is known of one vhost, or of one user's connections to it."""

    problems: int = 0
    groups: dict[tuple[str, str, int], Line] = field(default_factory=dict)
    """Problems that are alike, by what they have in common."""
    lines: list[Line] = field(default_factory=list)
    """Heaviest first."""
    words: Counter[str] = field(default_factory=Counter)
    """How many queues have which word of trouble."""
    growing: list[tuple[float, Any]] = field(default_factory=list)
    publishers: list[tuple[float, Any]] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        """One more problem of this share."""
        self.problems += 1
        key = (problem.trouble, problem.kind, len(str(problem.depth)))
        line = self.groups.get(key)
        if line is None:
            self.groups[key] = Line.of(problem)
        else:
            line.add(problem)

    def arrange(self) -> None:
        """Makes the lines of the groups, the heaviest first."""
        for line in self.groups.values():
            if line.count >= GROUP_FROM:
                self.lines.append(line)
            else:
                self.lines += [Line.of(problem) for problem in line.problems]
        self.groups.clear()
        self.lines.sort(key=lambda line: -line.weight)
        for movers in (self.growing, self.publishers):
            _cut(movers)

    @property
    def is_bad(self) -> bool:
        return any(SEVERITY[line.problems[0].trouble] == "bad" for line in self.lines)


Place = tuple[str, str | None]
"""A vhost, and the user whose connections it is about; None for its queues."""


@dataclass(slots=True)
class Findings:
    """The result of one look."""

    round: int = -1
    now: int = 0
    shares: dict[Place, Share] = field(default_factory=dict)

    def share(self, vhost: str, owner: str | None = None) -> Share:
        found = self.shares.get((vhost, owner))
        if found is None:
            found = self.shares[vhost, owner] = Share()
        return found


class ProblemWatch:
    """Keeps the findings of one broker, and since when each queue is in its state."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._findings = Findings()
        self._standing: WideDict[Any, tuple[str, int]] = WideDict()
        self._looking: asyncio.Future[None] | None = None
        self._not_before = 0.0
        self.looked_at = 0
        """How many queues the newest look went over."""

    def sampled(self) -> None:
        """A sample is taken; called by the sampler."""
        if self._broker.stats.sampled_at - self._findings.now >= _LOOK_EVERY_MS:
            self._begin()

    async def findings(self) -> Findings:
        """As of the last sample, however many ask."""
        if self._findings.round != self._broker.stats.rounds:
            self._begin()
        if self._looking is not None:
            await asyncio.shield(self._looking)
        return self._findings

    def _begin(self) -> None:
        if self._looking is None and time.monotonic() >= self._not_before:
            self._looking = asyncio.get_running_loop().create_future()
            self._broker.run_task(self._look())

    async def _look(self) -> None:
        until, used, begun = time.perf_counter() + _SLICE_S, 0.0, time.thread_time()
        try:
            for _ in self._steps():
                if time.perf_counter() >= until:
                    used += time.thread_time() - begun
                    await asyncio.sleep(0)
                    until, begun = time.perf_counter() + _SLICE_S, time.thread_time()
        except Exception:
            log.exception("looking for problems failed")
        finally:
            used += time.thread_time() - begun
            if used > _DEAR_S:
                self._not_before = time.monotonic() + _REST * used
            looking, self._looking = self._looking, None
            if looking is not None and not looking.done():
                looking.set_result(None)

    def _steps(self) -> Iterator[None]:
        """One look at everything, in short steps."""
        broker, stats = self._broker, self._broker.stats
        findings = Findings(round=stats.rounds, now=stats.sampled_at)
        looked_at = 0
        for vhost in list(broker.vhosts.values()):
            share = findings.share(vhost.name)
            for queue in Through(vhost.queues.values()):
                self._judge_queue(findings, share, queue)
                looked_at += 1
                if looked_at % _STEP == 0:
                    yield
        for connection in Through(broker.connections.values()):
            for channel in list(connection.channels.values()):
                self._judge_channel(findings, connection, channel)
                yield
        for share in findings.shares.values():
            share.arrange()
            yield
        self._findings, self.looked_at = findings, looked_at
        yield from self._forget_deleted()

    def _forget_deleted(self) -> Iterator[None]:
        """A part has up to 2,000 queues, which lie elsewhere in memory each: 6 ms at once."""
        queues = (queue for part in self._standing.each_part() for queue in Through(part))
        for place, queue in enumerate(queues, 1):
            if queue.deleted:
                self._standing.pop(queue, None)
            if place % _STEP == 0:
                yield

    def _judge_queue(self, findings: Findings, share: Share, queue: Any) -> None:
        now, config = findings.now, self._broker.config
        gauge = self._broker.stats.gauge("queue", queue)
        if gauge is None and _is_unused(queue):
            share.words["idle"] += 1
            self._standing.pop(queue, None)
            return
        word = troubles.of_queue(queue, gauge, now, config.stuck_after)
        share.words[word] += 1
        growth = gauge.growth if gauge is not None else 0.0
        if growth > troubles.GROWTH_MIN:
            _add_mover(share.growing, growth, queue)
        if word not in SEVERITY:
            self._standing.pop(queue, None)
            return
        before = self._standing.get(queue)
        if before is not None and before[0] == word:
            since = before[1]
        else:
            since = now
            self._standing[queue] = (word, since)
        if word == "refusing":
            # What is refused is what would be added.
            since, growth = queue.refusals.since, queue.refusals.rate
        elif word == "stuck" and gauge is not None:
            since = gauge.acked_at
        elif not self._has_lasted(word, now - since, gauge):
            return
        depth = queue.messages_ready + queue.messages_unacknowledged
        problem = Problem(word, "queue", queue, since, depth, growth)
        problem.weigh(now)
        share.add(problem)

    def _has_lasted(self, word: str, age: int, gauge: Any) -> bool:
        """Whether the state is more than a passing one."""
        if word in _AT_ONCE:
            return True
        if word == "redelivering" and not _comes_back(gauge):
            return False
        return bool(age >= self._broker.config.problem_grace * 1000)

    def _judge_channel(self, findings: Findings, connection: Connection, channel: Channel) -> None:
        stats, now = self._broker.stats, findings.now
        gauge = stats.gauge("channel", channel)
        if gauge is None:
            return
        vhost, owner = name_of(connection.vhost) or "", name_of(connection.user)
        rate = gauge.rate("publish")
        if rate > 0:
            _add_mover(findings.share(vhost, owner).publishers, rate, channel)
        if gauge.oldest_unconfirmed:
            since = gauge.unconfirmed_since
            if now - since > troubles.UNCONFIRMED_AFTER_MS:
                waiting = channel.messages_unconfirmed
                problem = Problem("unconfirmed", "connection", channel, since, waiting, 0.0)
                problem.weigh(now)
                findings.share(vhost, owner).add(problem)
        if channel.messages_unacknowledged:
            for consumer in list(channel.deliveries.consumers.values()):
                self._judge_consumer(findings, consumer, gauge)

    def _judge_consumer(self, findings: Findings, consumer: Any, gauge: Any) -> None:
        """A consumer that is stuck while others of its queue still ack; else the queue is the
        problem."""
        stuck_after, now = self._broker.config.stuck_after, findings.now
        if troubles.of_consumer(consumer, gauge, now, stuck_after) != "stuck":
            return
        queue = consumer.queue
        whole = self._broker.stats.gauge("queue", queue)
        if troubles.of_queue(queue, whole, now, stuck_after) == "stuck":
            return
        problem = Problem("stuck", "consumer", consumer, gauge.acked_at, consumer.unacked, 0.0)
        problem.weigh(now)
        findings.share(queue.vhost_name).add(problem)


def _is_unused(queue: MessageQueue) -> bool:
    """Whether there is nothing to judge; most of many queues are like that."""
    return not (
        queue.messages_ready
        or queue.messages_unacknowledged
        or queue.paused
        or troubles.is_refusing(queue)
    )


def _comes_back(gauge: Any) -> bool:
    """Whether half of what is delivered was delivered before: it goes round."""
    return bool(2 * gauge.rate("redeliver") >= gauge.rate_of(DELIVERING))


def _add_mover(movers: list[tuple[float, Any]], rate: float, thing: Any) -> None:
    movers.append((rate, thing))
    if len(movers) > 4 * MOVERS:
        _cut(movers)


def _cut(movers: list[tuple[float, Any]]) -> None:
    movers.sort(key=lambda one: -one[0])
    del movers[MOVERS:]
