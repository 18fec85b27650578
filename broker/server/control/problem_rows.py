"""How a problem reads in a line of text, and what a queue that refuses publishes says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.server.control import troubles
from broker.server.control.findings import SEVERITY, Line, Problem
from broker.server.control.requests import Caller
from broker.server.control.views import channel_name, given_name, name_of
from broker.vhosts.policies import settings

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.server.app import Broker

_LIMITS = {"x-max-length": "messages_ready", "x-max-length-bytes": "message_bytes_ready"}


def problem_row(broker: Broker, caller: Caller, line: Line, now: int) -> dict[str, Any]:
    """A line of the list as the caller may see it."""
    worst = line.problems[0]
    if line.count > 1:
        return _group_row(line)
    row: dict[str, Any] = {
        "severity": SEVERITY[worst.trouble],
        "kind": "queue" if worst.kind == "consumer" else worst.kind,
        "trouble": worst.trouble,
        "since": worst.since,
        "count": 1,
    }
    if worst.kind == "connection":
        channel = worst.thing
        row |= {
            "vhost": name_of(channel.connection.vhost) or "",
            "name": channel.connection.name,
            "user_provided_name": given_name(channel.connection),
            "channel": channel_name(channel),
            "text": f"channel {channel.number} has waited {_span(now - worst.since)} for a confirm;"
            f" {worst.depth:,} unconfirmed",
        }
    elif worst.kind == "consumer":
        consumer = worst.thing
        held = f"{consumer.unacked:,}"
        if consumer.prefetch_count:
            held += f" of {consumer.prefetch_count:,}"
        row |= {
            "vhost": consumer.queue.vhost_name,
            "name": consumer.queue.name,
            "consumer": consumer.tag,
            "text": f"consumer {consumer.tag} acknowledged nothing for {_span(now - worst.since)}; "
            f"it holds {held}",
        }
    else:
        queue = worst.thing
        row |= {"vhost": queue.vhost_name, "name": queue.name}
        row["text"] = _queue_text(broker, caller, worst, now)
    return row


def _queue_text(broker: Broker, caller: Caller, problem: Problem, now: int) -> str:
    queue, word = problem.thing, problem.trouble
    ready, unacked = queue.messages_ready, queue.messages_unacknowledged
    change = abs(problem.growth) > troubles.GROWTH_MIN
    rate = f", {problem.growth:+.3g}/s" if change else ""
    age = f" for {_span(now - problem.since)}" if now - problem.since >= 1000 else ""
    if word == "refusing":
        return _refusing_text(refusals_of(broker, caller, queue))
    if word == "not served":
        return f"{_messages(ready)} and no consumer{age}{rate}"
    if word == "stuck":
        return (
            f"consumers acknowledged nothing for {_span(now - problem.since)}; "
            f"{unacked:,} unacknowledged"
        )
    if word == "paused":
        return f"deliveries are paused; {_messages(ready)} waiting{rate}"
    if word == "at a limit":
        share = troubles.limit_share(queue) or 0.0
        return f"{_messages(ready)}, {share:.0%} of its limit{age}{rate}"
    if word == "redelivering":
        return f"messages come back again and again{age}; {_messages(ready + unacked)}"
    return f"{_messages(ready)}{rate}{age}"


def _refusing_text(refusals: dict[str, Any]) -> str:
    """One line: how many a second, which limit, from where, whose publishes."""
    rate, refused = refusals["rate"], refusals["refused"]
    text = f"refuses {rate:,.3g} publishes a second" if rate else f"refused {refused:,} publishes"
    if limits := refusals["limits"]:
        text += f": {' and '.join(limit_text(limit) for limit in limits)}"
    if publishers := refusals["publishers"]:
        named = [
            f"{one['user_provided_name'] or one['connection']} ({one['user']})"
            for one in publishers[:2]
        ]
        more = len(publishers) - len(named)
        text += f"; published by {', '.join(named)}" + (f" and {more:,} more" if more else "")
    if others := refusals["others"]:
        text += f"; {others:,} publisher{' of another user' if others == 1 else 's of other users'}"
    return text


def limit_text(limit: dict[str, Any]) -> str:
    """A limit that is reached, with its source: `max-length 10,000 of policy 'limits'`."""
    source = f"of {limit['source']}"
    if limit["source_name"]:
        source += f" '{limit['source_name']}'"
    elif limit["source"] == "argument":
        source = "of its declaration"
    return f"{limit['argument'].removeprefix('x-')} {limit['value']:,} {source}"


def _limits_reached(queue: MessageQueue) -> list[dict[str, Any]]:
    """The length limits that the queue is at; the nearest one if a message is too large for it."""
    found = []
    for setting in settings("queue", queue.arguments, queue.policy):
        level = _LIMITS.get(setting.argument)
        if level is None or not isinstance(setting.value, int):
            continue
        used = getattr(queue, level)
        found.append((used / max(1, setting.value), used, setting))
    found.sort(key=lambda one: -one[0])
    reached = [one for one in found if one[0] >= 1] or found[:1]
    return [
        {
            "argument": setting.argument,
            "value": setting.value,
            "used": used,
            "source": setting.source.kind,
            "source_name": setting.source.name,
        }
        for _, used, setting in reached
    ]


_GROUP_TEXTS = {
    "refusing": "{things} refuse publishes: they are full, with {range}",
    "not served": "{things} have {range} and no consumer",
    "stuck": "{things} have consumers that acknowledged nothing for a while; they hold {range}",
    "paused": "{things} are paused, with {range}",
    "at a limit": "{things} are at 90 % or more of a limit, with {range}",
    "growing": "{things} grow, with {range}",
    "redelivering": "{things} have messages that come back again and again, {range}",
    "unconfirmed": "{things} wait for confirms of {range}",
}


def _group_row(line: Line) -> dict[str, Any]:
    worst, count = line.problems[0], line.count
    least, most = line.least, line.most
    number = f"{least:,}" if least == most else f"{least:,}–{most:,}"
    plural = "" if least == most == 1 else "s"
    nouns = {"queue": "queues", "consumer": "consumers", "connection": "channels"}
    if worst.kind == "connection":
        vhost = name_of(worst.thing.connection.vhost) or ""
        names = [one.thing.connection.name for one in line.problems]
    else:
        queues = [one.thing.queue if one.kind == "consumer" else one.thing for one in line.problems]
        vhost, names = queues[0].vhost_name, [queue.name for queue in queues]
    template = _GROUP_TEXTS[worst.trouble]
    if worst.kind == "consumer":
        template = "{things} acknowledged nothing for a while; each holds {range}"
    return {
        "severity": SEVERITY[worst.trouble],
        "kind": nouns[worst.kind],
        "trouble": worst.trouble,
        "vhost": vhost,
        "name": "",
        "names": names,
        "count": count,
        "since": worst.since,
        "text": template.format(
            things=f"{count:,} {nouns[worst.kind]}", range=f"{number} message{plural}"
        ),
    }


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _span(milliseconds: int) -> str:
    minutes, rest = divmod(max(0, milliseconds) // 1000, 60)
    if minutes >= 120:
        return f"{minutes // 60:,} h"
    return f"{minutes} min" if minutes else f"{rest} s"


def refusals_of(broker: Broker, caller: Caller, queue: MessageQueue) -> dict[str, Any]:
    """What a queue refuses, which limit makes it, and whose publishes they are."""
    refusals = queue.refusals
    if refusals is None:
        return {"is_refusing": False, "rate": 0.0, "refused": 0, "since": None, "limits": [],
                "publishers": [], "others": 0}  # fmt: skip
    publishers: dict[int, dict[str, Any]] = {}
    others = 0
    for key, refused in refusals.by_connection().items():
        connection = broker.connections.get(key)
        if connection is None:
            continue
        if not caller.sight.of_connection(name_of(connection.user)):
            others += 1
            continue
        publishers[key] = {
            "connection": connection.name,
            "user": name_of(connection.user),
            "user_provided_name": given_name(connection),
            "refused": refused,
        }
    return {
        "is_refusing": refusals.is_going_on,
        "rate": refusals.rate,
        "refused": refusals.spell,
        "since": refusals.since,
        "limits": _limits_reached(queue),
        "publishers": sorted(publishers.values(), key=lambda one: -one["refused"]),
        "others": others,
    }
