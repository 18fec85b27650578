"""The verb that shows the broker's own log, line by line as it is written."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from broker.control_schema import Log
from broker.logs import ENTRIES_KEPT, RECENT
from broker.server.control.requests import Request, bad_request, handles

WAIT_MAX_S = 30.0


@handles("log")
async def log(request: Request[Log]) -> Any:
    args = request.args
    if not 0 <= args.count <= ENTRIES_KEPT:
        raise bad_request(f"count must be from 0 to {ENTRIES_KEPT}")
    found = RECENT.since(args.after, args.level, args.count)
    if not found and args.wait_s > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(args.wait_s, WAIT_MAX_S)):
                found = await _next(args)
    newest = RECENT.entries[-1].id if RECENT.entries else args.after
    return {"entries": found, "newest": newest}


async def _next(args: Log) -> list[Any]:
    loop, written = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        # Called in the thread that logs; the loop may have ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(written.set)

    RECENT.told.append(tell)
    try:
        while True:
            found = RECENT.since(args.after, args.level, args.count)
            if found:
                return found
            await written.wait()
            written.clear()
    finally:
        RECENT.told.remove(tell)
