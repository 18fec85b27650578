"""Problems as one user may see them: the sentence, the first problems, and all pages."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from broker.schema.control_schema import Problems, QueueRefusals
from broker.server.control.encoding import full_name
from broker.server.control.findings import MOVERS, Findings, Line, ProblemWatch, Share
from broker.server.control.problem_rows import problem_row, refusals_of
from broker.server.control.requests import Caller, Request, RequestError, handles, not_found
from broker.server.control.views import channel_name, given_name, name_of
from broker.server.pace import Pace
from broker.stats.sampler import WAIT_LEVELS

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.wire.channel import Channel

SHOWN = 5
"""Problems on the overview; the others are behind "show all"."""

PAGE_SIZE_MAX = 500
_watches: WeakKeyDictionary[Any, ProblemWatch] = WeakKeyDictionary()


def watch_of(broker: Broker) -> ProblemWatch:
    """The watch of a broker; from its first call on, it looks by itself, too."""
    watch = _watches.get(broker)
    if watch is None:
        watch = _watches[broker] = ProblemWatch(broker)
        broker.sampling.listeners.append(watch.sampled)
    return watch


def forget(broker: Broker) -> None:
    """The broker's watch ends."""
    watch = _watches.pop(broker, None)
    if watch is not None:
        broker.sampling.listeners.remove(watch.sampled)


async def summary(broker: Broker, caller: Caller, vhost: str | None) -> dict[str, Any]:
    """The part of the overview that says how things are, as far as the caller may see."""
    findings = await watch_of(broker).findings()
    shares = _seen(findings, caller, vhost)
    node = _node_problems(broker, caller)
    words: Counter[str] = Counter()
    for share in shares:
        words.update(share.words)
    shown = node[:SHOWN]
    for line in islice(_lines(shares), SHOWN - len(shown)):
        shown.append(problem_row(broker, caller, line, findings.now))
    return {
        "health": _health(broker, caller, vhost, _count(node, shares), _is_bad(node, shares)),
        "problems": shown,
        "problem_count": _count(node, shares),
        "problem_lines": len(node) + sum(len(share.lines) for share in shares),
        "alarms": [*broker.watch.rows(), *broker.stall.rows()],
        "queue_troubles": dict(words),
        "top_queues": [
            {
                "vhost": queue.vhost_name,
                "name": queue.name,
                "net_rate": round(growth, 3),
                "messages": queue.messages_ready + queue.messages_unacknowledged,
            }
            for growth, queue in _movers(share.growing for share in shares)
        ],
        "top_publishers": [
            _publisher(channel, rate)
            for rate, channel in _movers(share.publishers for share in shares)
        ],
        "durability": durability(broker),
    }


@handles("problems")
async def problems(request: Request[Problems]) -> Any:
    args, broker, caller = request.args, request.broker, request.caller
    if args.vhost is not None:
        caller.vhost(args.vhost)
    if args.page < 1 or not 1 <= args.page_size <= PAGE_SIZE_MAX:
        reason = f"page must be 1 or more, page_size 1 to {PAGE_SIZE_MAX}"
        raise RequestError("invalid_pagination_parameters", reason)
    findings = await watch_of(broker).findings()
    shares = _seen(findings, caller, args.vhost)
    node = _node_problems(broker, caller)
    count = len(node) + sum(len(share.lines) for share in shares)
    page_count = max(1, -(-count // args.page_size))
    if args.page > page_count:
        raise RequestError(
            "page_out_of_range",
            f"page out of range, page: {args.page} page size: {args.page_size}, len: {count}",
        )
    first = (args.page - 1) * args.page_size
    rows = node[first : first + args.page_size]
    begin = max(0, first - len(node))
    pace = Pace()
    for line in islice(_lines(shares), begin, begin + args.page_size - len(rows)):
        rows.append(problem_row(broker, caller, line, findings.now))
        await pace()
    return {
        "health": _health(broker, caller, args.vhost, _count(node, shares), _is_bad(node, shares)),
        "items": rows,
        "problem_count": _count(node, shares),
        "item_count": len(rows),
        "filtered_count": count,
        "total_count": count,
        "page": args.page,
        "page_count": page_count,
        "page_size": args.page_size,
    }


@handles("queue.refusals")
async def queue_refusals(request: Request[QueueRefusals]) -> Any:
    args, caller = request.args, request.caller
    queues = caller.vhost(args.vhost).queues
    queue = queues.get(full_name(queues, args.name))
    if queue is None:
        raise not_found("queue_not_found")
    return refusals_of(request.broker, caller, queue)


def durability(broker: Broker) -> dict[str, Any]:
    """What a confirm means here, and how long a sync takes."""
    no_sync = bool(broker.config.no_sync)
    return {
        "confirmed": "in memory" if no_sync else "on disk",
        "no_sync": no_sync,
        **waits(broker),
    }


def waits(broker: Broker) -> dict[str, float | None]:
    """How long syncs and confirms take, in ms; None before the first."""
    levels = broker.stats.node.levels
    return {name: levels[name] or None for name in WAIT_LEVELS}


# -- what the caller may see -----------------------------------------------------------------------


def _seen(findings: Findings, caller: Caller, vhost: str | None) -> list[Share]:
    """The shares that the caller may see, before anything is counted or cut: queues by vhost,
    connections by user, as in their lists."""
    return [
        share
        for (name, owner), share in findings.shares.items()
        if (vhost is None or name == vhost) and caller.sight.of_share(name, owner)
    ]


def _lines(shares: list[Share]) -> Iterator[Line]:
    """All lines, heaviest first."""
    return heapq.merge(*(share.lines for share in shares), key=lambda line: -line.weight)


def _movers(found: Iterable[list[tuple[float, Any]]]) -> list[tuple[float, Any]]:
    merged = heapq.merge(*found, key=lambda one: -one[0])
    return list(islice(merged, MOVERS))


def _count(node: list[dict[str, Any]], shares: list[Share]) -> int:
    return len(node) + sum(share.problems for share in shares)


def _is_bad(node: list[dict[str, Any]], shares: list[Share]) -> bool:
    return any(one["severity"] == "bad" for one in node) or any(share.is_bad for share in shares)


def _health(
    broker: Broker, caller: Caller, vhost: str | None, count: int, is_bad: bool
) -> dict[str, str]:
    """How things are, as far as the caller sees them: `state`, `text`, and what is left out."""
    scope = _scope(broker, caller, vhost)
    if count:
        text = "One problem." if count == 1 else f"{count:,} problems."
        return {"state": "bad" if is_bad else "warn", "text": text, "scope": scope}
    sees_all = caller.sight.of_node and not scope
    text = "No problems." if sees_all else "No problems that you may see."
    return {"state": "fine", "text": text, "scope": scope}


def _scope(broker: Broker, caller: Caller, vhost: str | None) -> str:
    """What the sentence leaves out for who sees that there are more vhosts than it may look into;
    others do not learn of them."""
    total = len(broker.vhosts)
    if vhost is not None or not caller.sight.of_node:
        return ""
    seen = len(caller.vhosts())
    if seen == total:
        return ""
    return (
        f"You see the queues of {seen:,} of {total:,} virtual hosts: you have no permission in "
        "the others."
    )


def _publisher(channel: Channel, rate: float) -> dict[str, Any]:
    connection = channel.connection
    return {
        "vhost": name_of(connection.vhost) or "",
        "connection": connection.name,
        "channel": channel_name(channel),
        "user_provided_name": given_name(connection),
        "user": name_of(connection.user),
        "publish_rate": rate,
    }


def _node_problems(broker: Broker, caller: Caller) -> list[dict[str, Any]]:
    found: list[tuple[str, str, str]] = []
    for row in (*broker.watch.rows(), *broker.stall.rows()):
        found.append(("bad", row["name"], row["text"]))
    if broker.config.no_sync:
        found.append(("warn", "durability", "started with --no-sync: confirmed is in memory"))
    if broker.service.text:
        found.append(("bad", broker.service.state, broker.service.text))
    if caller.sight.of_node:
        # Of the machine, and of objects in any vhost.
        found += _inner_problems(broker)
    return [
        {"severity": severity, "kind": "node", "trouble": name, "vhost": "", "name": name,
         "text": text, "count": 1}
        for severity, name, text in found
    ]  # fmt: skip


def _inner_problems(broker: Broker) -> list[tuple[str, str, str]]:
    found = [("bad", "recovery", text) for text in broker.problems]
    if broker.tiers is not None:
        found += broker.tiers.problems()
    if broker.histories is not None:
        found += broker.histories.problems()
    node = broker.sampling.node
    if count := broker.persister.quarantine.count:
        stretches = "stretch" if count == 1 else "stretches"
        text = f"{count:,} damaged {stretches} of segments in quarantine"
        found.append(("warn", "quarantine", text))
    watch = broker.watch
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
    return found
