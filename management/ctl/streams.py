"""Commands on streams, and on the history, which is one."""

from __future__ import annotations

import sys
import time
from typing import Any

from broker.schema.message_history import HISTORY
from management.ctl import output
from management.ctl.table import (
    USAGE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    queue,
    runs,
    whole,
)
from management.history_rows import EVENTS, is_of, record
from management.search_words import BadWords, HistoryWords, parse, parse_history


@runs(
    Command(
        name="search_stream",
        group="queues",
        help="Finds the newest messages of a stream that have a key, by its index "
        "(x-stream-index). The words are KEY=VALUE, or a value where the stream has one key, then "
        "'since' and 'until' with a day, a time, 'yesterday' or an age such as 2h.",
        examples=(
            "search_stream orders order_id=4711",
            "search_stream orders 'order_id=4711 since yesterday' --count 20",
        ),
        verb="stream.search",
        parameters=(
            queue(),
            Parameter(name="words", help="What to search for."),
            Parameter(name="--count", help="How many at most.", read=whole, default=10),
        ),
        says="Searching stream '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    )
)
async def search_stream(call: Call) -> Rows:
    messages = await _found(call, call.options["queue"])
    columns = ("offset", "timestamp", "exchange", "routing_key", "properties", "payload")
    return Rows(columns, [[_readable(row[one]) for one in columns] for row in messages])


@runs(
    Command(
        name="search_history",
        group="queues",
        help="Finds the newest records of a virtual host's history that have a key "
        "(policy history, history-keys). The words are those of search_stream, and queue=NAME and "
        "exchange=NAME.",
        examples=(
            "search_history 'order_id=4711 since yesterday'",
            "search_history 'order_id=4711 queue=orders'",
        ),
        verb="stream.search",
        parameters=(
            Parameter(name="words", help="What to search for."),
            Parameter(name="--count", help="How many at most.", read=whole, default=10),
        ),
        says="Searching the history of vhost '{vhost}' ...",
        vhost=True,
    )
)
async def search_history(call: Call) -> Rows:
    try:
        words = parse_history(call.options["words"], time.time_ns() // 1_000_000)
    except BadWords as error:
        raise CommandError(str(error), USAGE) from None
    if words.vhost is not None:
        raise CommandError("the virtual host is named with -p here", USAGE)
    rows = [record(message) for message in await _asked(call, HISTORY, words)]
    records = [row for row in rows if is_of(row, words.queue, words.exchange)]
    columns = (
        "offset",
        "timestamp",
        "exchange",
        "routing_key",
        "user",
        "connection",
        "outcome",
        "queues",
        "payload_bytes",
        "properties",
        "payload",
    )
    return Rows(columns, [[_readable(row[one]) for one in columns] for row in records])


@runs(
    Command(
        name="message_life",
        group="queues",
        help="Tells the life of a message by the history of its virtual host: where it was "
        "published, and what happened to it in each queue (policy history-events). OFFSET is that "
        "of its record, as search_history shows it.",
        examples=("message_life 81234",),
        verb="history.life",
        parameters=(Parameter(name="offset", help="Of the record in the history.", read=whole),),
        says="Reading the life of message {offset} in vhost '{vhost}' ...",
        vhost=True,
    )
)
async def message_life(call: Call) -> Rows:
    found = await call.ask("history.life", vhost=call.vhost, offset=call.options["offset"])
    for reason in found["reasons"]:
        print(f"Not complete: {output.safe_lines(reason)}", file=sys.stderr)
    if not found["kept"]:
        print(
            "Of its queues no events are kept: set the policy key history-events.", file=sys.stderr
        )
    columns = ("timestamp", "event", "queue", "user", "connection", "consumer_tag", "queues")
    return Rows(
        columns,
        [
            [
                EVENTS.get(event["event"], event["event"]) if one == "event" else event.get(one)
                for one in columns
            ]
            for event in found["events"]
        ],
    )


async def _found(call: Call, stream: str) -> list[dict[str, Any]]:
    """The messages that the words of a call find. Raises CommandError."""
    try:
        words = parse(call.options["words"], time.time_ns() // 1_000_000)
    except BadWords as error:
        raise CommandError(str(error), USAGE) from None
    return await _asked(call, stream, HistoryWords(words))


async def _asked(call: Call, stream: str, wanted: HistoryWords) -> list[dict[str, Any]]:
    words = wanted.words
    given = {"key": words.key, "first": words.first, "last": words.last}
    found = await call.ask(
        "stream.search",
        vhost=call.vhost,
        name=stream,
        value=words.value,
        max=call.options["count"],
        **{name: value for name, value in given.items() if value is not None},
    )
    for reason in found["reasons"]:
        print(f"Not complete: {output.safe_lines(reason)}", file=sys.stderr)
    messages: list[dict[str, Any]] = found["messages"]
    return messages


def _readable(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
