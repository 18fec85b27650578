"""The verb that shows the broker's own log, line by line as it is written."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from broker.process.logs import ENTRIES_KEPT, RECENT
from broker.schema.control_schema import Log
from broker.server.control.requests import (
    Caller,
    Request,
    bad_request,
    handles,
    not_authorised,
)

WAIT_MAX_S = 30.0
_RIGHTS_LOOKED_AT_S = 1.0
"""Between two looks at the rights of a reader who waits."""


@handles("log")
async def log(request: Request[Log]) -> Any:
    args = request.args
    if not 0 <= args.count <= ENTRIES_KEPT:
        raise bad_request(f"count must be from 0 to {ENTRIES_KEPT}")
    _check(request)
    found = RECENT.since(args.after, args.level, args.count)
    if not found and args.wait_s > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(args.wait_s, WAIT_MAX_S)):
                found = await _next(request)
    newest = RECENT.entries[-1].id if RECENT.entries else args.after
    user = request.caller.user
    return {"entries": found, "newest": newest, "epoch": user.epoch if user is not None else 0}


def _check(request: Request[Log]) -> None:
    """Raises RequestError 401 if the caller may not read the log any more, or has another password
    than when it began to."""
    epoch, before = request.args.epoch, request.caller.user
    if before is None:
        return
    user = request.broker.access.users.get(before.name)
    if user is None or (epoch is not None and user.epoch != epoch):
        raise not_authorised("the user has changed; sign in again")
    Caller(request.broker, user).require("monitoring")


async def _next(request: Request[Log]) -> list[Any]:
    args = request.args
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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RIGHTS_LOOKED_AT_S):
                    await written.wait()
            written.clear()
            _check(request)
    finally:
        RECENT.told.remove(tell)
