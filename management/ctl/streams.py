"""Commands on streams."""

from __future__ import annotations

import sys
import time
from typing import Any

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
    try:
        words = parse(call.options["words"], time.time_ns() // 1_000_000)
    except BadWords as error:
        raise CommandError(str(error), USAGE) from None
    wanted = {"key": words.key, "first": words.first, "last": words.last}
    found = await call.ask(
        "stream.search",
        vhost=call.vhost,
        name=call.options["queue"],
        value=words.value,
        max=call.options["count"],
        **{name: value for name, value in wanted.items() if value is not None},
    )
    for reason in found["reasons"]:
        print(f"Not complete: {output.safe_lines(reason)}", file=sys.stderr)
    columns = ("offset", "timestamp", "exchange", "routing_key", "properties", "payload")
    return Rows(columns, [[_readable(row[one]) for one in columns] for row in found["messages"]])


def _readable(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
