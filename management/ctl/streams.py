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
from management.history_rows import record
from management.search_words import BadWords, parse


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
        "(policy history, history-keys). The words are those of search_stream.",
        examples=("search_history 'order_id=4711 since yesterday'",),
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
    records = [record(message) for message in await _found(call, HISTORY)]
    columns = (
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


async def _found(call: Call, stream: str) -> list[dict[str, Any]]:
    """The messages that the words of a call find. Raises CommandError."""
    try:
        words = parse(call.options["words"], time.time_ns() // 1_000_000)
    except BadWords as error:
        raise CommandError(str(error), USAGE) from None
    wanted = {"key": words.key, "first": words.first, "last": words.last}
    found = await call.ask(
        "stream.search",
        vhost=call.vhost,
        name=stream,
        value=words.value,
        max=call.options["count"],
        **{name: value for name, value in wanted.items() if value is not None},
    )
    for reason in found["reasons"]:
        print(f"Not complete: {output.safe_lines(reason)}", file=sys.stderr)
    messages: list[dict[str, Any]] = found["messages"]
    return messages


def _readable(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
