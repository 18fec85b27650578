"""What needs a person: problems of queues and of the node, and the sentence that sums them up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from broker.server.control import troubles
from broker.server.control.encoding import Pace
from broker.server.control.requests import Caller
from broker.server.control.views import channel_name, name_of
from broker.stats.sampler import WAIT_LEVELS

_AT_MOST = 200
_SHOWN = 20
_MOVERS = 10

_SEVERITY = {
    "not served": "bad",
    "stuck": "bad",
    "paused": "warn",
    "at a limit": "warn",
    "growing": "warn",
}


@dataclass(slots=True)
class Findings:
    """The result of one look at everything."""

    round: int = -1
    problems: list[tuple[int, float, dict[str, Any]]] = field(default_factory=list)
    """Rank, size and problem, worst first."""
    growing: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    publishers: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    words: dict[str, Counter[str]] = field(default_factory=dict)
    """By vhost, how many queues have which word of trouble."""


_newest: WeakKeyDictionary[Any, Findings] = WeakKeyDictionary()


async def look(broker: Any) -> Findings:
    """Findings as of the last sample; made once per sample, however many ask."""
    known = _newest.get(broker)
    if known is not None and known.round == broker.stats.rounds:
        return known
    findings = Findings(round=broker.stats.rounds)
    pace = Pace()
    stats, now = broker.stats, broker.stats.sampled_at
    stuck_after = broker.config.stuck_after
    for vhost in list(broker.vhosts.values()):
        words = findings.words[vhost.name] = Counter()
        for queue in list(vhost.queues.values()):
            gauge = stats.gauge("queue", queue)
            word = troubles.of_queue(queue, gauge, now, stuck_after)
            words[word] += 1
            if word in _SEVERITY:
                problem = _queue_problem(queue, word, gauge, now)
                size = float(queue.messages_ready + queue.messages_unacknowledged)
                findings.problems.append((troubles.RANK[word], -size, problem))
            if gauge is not None and gauge.growth > troubles.GROWTH_MIN:
                mover = {
                    "vhost": vhost.name,
                    "name": queue.name,
                    "net_rate": round(gauge.growth, 3),
                    "messages": queue.messages_ready + queue.messages_unacknowledged,
                }
                findings.growing.append((gauge.growth, mover))
            await pace()
    for connection in list(broker.connections.values()):
        for channel in list(connection.channels.values()):
            gauge = stats.gauge("channel", channel)
            rate = gauge.rate("publish") if gauge is not None else 0.0
            if rate > 0:
                findings.publishers.append((rate, _publisher(connection, channel, rate)))
            if gauge is not None and gauge.oldest_unconfirmed:
                _add_unconfirmed(findings, channel, now - gauge.unconfirmed_since)
            if channel.messages_unacknowledged:
                for consumer in list(channel.consumers.values()):
                    _add_stuck_consumer(findings, stats, consumer, now, stuck_after)
            await pace()
    findings.problems.sort(key=lambda one: one[:2])
    del findings.problems[_AT_MOST:]
    for movers in (findings.growing, findings.publishers):
        movers.sort(key=lambda one: -one[0])
        del movers[_AT_MOST:]
    _newest[broker] = findings
    return findings


async def summary(broker: Any, caller: Caller, vhost: str | None) -> dict[str, Any]:
    """The part of the overview that says how things are, as far as the caller may see."""
    findings = await look(broker)

    def seen(row: dict[str, Any]) -> bool:
        return (vhost is None or row["vhost"] == vhost) and caller.sees_vhost(row["vhost"])

    problems = _node_problems(broker)
    problems += [row for _, _, row in findings.problems if seen(row)]
    words: Counter[str] = Counter()
    for name, counted in findings.words.items():
        if seen({"vhost": name}):
            words.update(counted)
    publishers = [
        row
        for _, row in findings.publishers
        if seen(row) and (caller.sees_others or row["user"] == caller.name)
    ]
    return {
        "health": _health(problems),
        "problems": problems[:_SHOWN],
        "problem_count": len(problems),
        "alarms": [*broker.watch.rows(), *broker.stall.rows()],
        "queue_troubles": dict(words),
        "top_queues": [row for _, row in findings.growing if seen(row)][:_MOVERS],
        "top_publishers": publishers[:_MOVERS],
        "durability": durability(broker),
    }


def durability(broker: Any) -> dict[str, Any]:
    """What a confirm means here, and how long a sync takes."""
    no_sync = bool(broker.config.no_sync)
    return {
        "confirmed": "in memory" if no_sync else "on disk",
        "no_sync": no_sync,
        **waits(broker),
    }


def waits(broker: Any) -> dict[str, float | None]:
    """How long syncs and confirms take, in ms; None before the first."""
    levels = broker.stats.node.levels
    return {name: levels[name] or None for name in WAIT_LEVELS}


def _health(problems: list[dict[str, Any]]) -> dict[str, str]:
    if not problems:
        return {"state": "fine", "text": "Nothing needs you."}
    count = len(problems)
    text = "One thing needs you." if count == 1 else f"{count} things need you."
    bad = any(problem["severity"] == "bad" for problem in problems)
    return {"state": "bad" if bad else "warn", "text": text}


def _queue_problem(queue: Any, word: str, gauge: Any, now: int) -> dict[str, Any]:
    ready, unacked = queue.messages_ready, queue.messages_unacknowledged
    growth = gauge.growth if gauge is not None else 0.0
    rate = f", {growth:+.3g}/s" if abs(growth) > troubles.GROWTH_MIN else ""
    if word == "not served":
        text = f"{ready:,} messages and no consumer{rate}"
    elif word == "stuck":
        text = f"consumers acknowledged nothing for {_span(now - gauge.acked_at)}; "
        text += f"{unacked:,} unacknowledged"
    elif word == "paused":
        text = f"deliveries are paused; {ready:,} messages wait{rate}"
    elif word == "at a limit":
        share = troubles.limit_share(queue) or 0.0
        text = f"{ready:,} messages, {share:.0%} of its limit{rate}"
    else:
        text = f"{ready:,} messages{rate}"
    return {
        "severity": _SEVERITY[word],
        "kind": "queue",
        "trouble": word,
        "vhost": queue.vhost_name,
        "name": queue.name,
        "text": text,
    }


def _add_stuck_consumer(
    findings: Findings, stats: Any, consumer: Any, now: int, stuck_after: float
) -> None:
    """A consumer that is stuck while others of its queue go on; else the queue is the problem."""
    queue, gauge = consumer.queue, stats.gauge("channel", consumer.channel)
    if troubles.of_consumer(consumer, gauge, now, stuck_after) != "stuck":
        return
    if troubles.of_queue(queue, stats.gauge("queue", queue), now, stuck_after) == "stuck":
        return
    held = f"{consumer.unacked:,}"
    if consumer.prefetch_count:
        held += f" of {consumer.prefetch_count:,}"
    problem = {
        "severity": _SEVERITY["stuck"],
        "kind": "queue",
        "trouble": "stuck",
        "vhost": queue.vhost_name,
        "name": queue.name,
        "consumer": consumer.tag,
        "text": f"consumer {consumer.tag} acknowledged nothing for {_span(now - gauge.acked_at)}; "
        f"it holds {held}",
    }
    findings.problems.append((troubles.RANK["stuck"], -float(consumer.unacked), problem))


def _span(milliseconds: int) -> str:
    minutes, rest = divmod(milliseconds // 1000, 60)
    return f"{minutes} min" if minutes else f"{rest} s"


def _add_unconfirmed(findings: Findings, channel: Any, age: int) -> None:
    """A publisher that waits: its confirms hang on consumers (x-confirm-on), or the disk stalls."""
    if age <= troubles.UNCONFIRMED_AFTER_MS:
        return
    waiting = channel.messages_unconfirmed
    problem = {
        "severity": "warn",
        "kind": "connection",
        "trouble": "unconfirmed",
        "vhost": name_of(channel.connection.vhost) or "",
        "name": channel.connection.name,
        "channel": channel_name(channel),
        "text": f"channel {channel.number} has waited {age // 60_000} min for a confirm; "
        f"{waiting:,} unconfirmed",
    }
    findings.problems.append((troubles.RANK["stuck"], -float(waiting), problem))


def _publisher(connection: Any, channel: Any, rate: float) -> dict[str, Any]:
    client = connection.client_properties
    given = client.get("connection_name") if isinstance(client, dict) else None
    return {
        "vhost": name_of(connection.vhost) or "",
        "connection": connection.name,
        "channel": channel_name(channel),
        "user_provided_name": given,
        "user": name_of(connection.user),
        "publish_rate": rate,
    }


def _node_problems(broker: Any) -> list[dict[str, Any]]:
    found = [("bad", "recovery", text) for text in broker.problems]
    node = broker.sampling.node
    if count := broker.persister.quarantine.count:
        stretches = "stretch" if count == 1 else "stretches"
        text = f"{count:,} damaged {stretches} of segments in quarantine"
        found.append(("warn", "quarantine", text))
    if broker.config.no_sync:
        found.append(("warn", "durability", "started with --no-sync: confirmed is in memory"))
    watch = broker.watch
    for row in (*watch.rows(), *broker.stall.rows()):
        found.append(("bad", row["name"], row["text"]))
    free, used = watch.reading.disk_free, watch.reading.mem_used
    if "disk" not in watch.active and free < 2 * watch.disk_limit:
        text = f"{free >> 20:,} MiB are free; at {watch.disk_limit >> 20:,} MiB publishing stops"
        found.append(("warn", "disk", text))
    if "memory" not in watch.active and used > 0.9 * watch.memory_watermark:
        share = used / watch.memory_watermark
        found.append(("warn", "memory", f"the broker uses {share:.0%} of its memory limit"))
    if node.fd_total and node.fd_used > 0.9 * node.fd_total:
        text = f"{node.fd_used:,} of {node.fd_total:,} descriptors are in use"
        found.append(("warn", "descriptors", text))
    return [
        {"severity": severity, "kind": "node", "trouble": name, "vhost": "", "name": name,
         "text": text}
        for severity, name, text in found
    ]  # fmt: skip
