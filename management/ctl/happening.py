"""Commands that show what happens in the broker: its log and its events."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from management.ctl import output
from management.ctl.parsing import seconds
from management.ctl.table import (
    DATA,
    PRINTED,
    Call,
    Command,
    CommandError,
    Parameter,
    runs,
    whole,
)


def _line(entry: list[Any]) -> str:
    _, at, level, source, text = entry
    moment = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return output.safe(f"{moment.replace('+00:00', 'Z')} {level} {source}: {text}")


@runs(
    Command(
        name="log_tail",
        group="node",
        help="Prints the last lines of the broker's log; 1,000 are kept.",
        examples=("log_tail", "log_tail --number 200"),
        verb="log",
        parameters=(
            Parameter(name="--number", also=("-N",), help="How many.", read=whole, default=50),
        ),
        says="The last {number} lines of the log ...",
    )
)
async def log_tail(call: Call) -> str:
    count = call.options["number"]
    if not 1 <= count <= 1000:
        raise CommandError("the number of lines is 1 to 1000", DATA)
    return "\n".join(_line(one) for one in (await call.ask("log", count=count))["entries"])


_DURATION = Parameter(
    name="--duration",
    also=("-d",),
    help="Seconds, or infinity.",
    read=seconds,
    default=float("inf"),
)
_WAIT_S = 20.0


@runs(
    Command(
        name="log_tail_stream",
        group="node",
        help="Prints lines of the broker's log as they are written, until Ctrl-C or for a time. "
        "JSON is one object a line.",
        examples=("log_tail_stream --duration 60",),
        verb="log",
        parameters=(_DURATION,),
        says="Lines of the log as they are written ...",
    )
)
async def log_tail_stream(call: Call) -> Any:
    as_json = output.FORMATS[call.options["format"]] == "json"
    newest = (await call.ask("log", count=1))["newest"]
    deadline = time.monotonic() + call.options["duration"]
    while (left := deadline - time.monotonic()) > 0:
        answer = await call.ask("log", after=newest, wait_s=min(left, _WAIT_S))
        for entry in answer["entries"]:
            names = ("id", "time", "level", "source", "text")
            found = dict(zip(names, entry, strict=True))
            print(output.as_json(found) if as_json else _line(entry), flush=True)
        newest = answer["newest"]
    return PRINTED


@runs(
    Command(
        name="log_location",
        group="node",
        help="Says where the broker's log goes: the file, pipe or terminal of its standard error.",
        examples=("log_location",),
        verb="process",
        says="Asking where the log goes ...",
    )
)
async def log_location(call: Call) -> str:
    return str((await call.ask("process"))["log"])


@runs(
    Command(
        name="consume_event_stream",
        group="node",
        help="Prints what happens in the broker, a JSON object a line: objects, users and "
        "connections that come and go, alarms. The names are in docs/control-socket.md.",
        examples=(
            "consume_event_stream --duration 60",
            "consume_event_stream --pattern '^queue\\.'",
        ),
        verb="subscribe",
        parameters=(
            _DURATION,
            Parameter(name="--pattern", help="Regular expression for names of events."),
        ),
    )
)
async def consume_event_stream(call: Call) -> Any:
    try:
        pattern = re.compile(call.options["pattern"] or "")
    except re.error as error:
        raise CommandError(f"--pattern: {error}", DATA) from None
    duration = call.options["duration"]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None if duration == float("inf") else duration):
            async with aclosing(call.events()) as events:
                await _print_events(events, pattern)
    return PRINTED


async def _print_events(events: AsyncIterator[Any], pattern: re.Pattern[str]) -> None:
    async for push in events:
        if push.event not in ("start", "resync") and pattern.search(push.event):
            shown = {"event": push.event, "timestamp_in_ms": push.at, **push.data}
            print(output.as_json(shown), flush=True)
