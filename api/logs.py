"""The broker's log: as text, and live as server-sent events in LavinMQ's shape."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from ninja import Query, Router, Schema

from api.ask import ask
from api.identity import BasicOrSession
from broker.settings.bounds import LOG_READERS_MAX
from management.broker_client import BrokerError
from management.sessions import SessionEnd, SessionOver

router = Router(tags=["Log"], auth=BasicOrSession("monitoring"))

WAIT_S = 15.0
"""After so long without a line a comment is sent, which keeps proxies from hanging up."""

_readers = 0


class LogQuery(Schema):
    level: Literal["debug", "info", "warning", "error"] = "debug"


class LiveQuery(LogQuery):
    after: int = 0


@router.get("/logs")
async def log_as_text(request: HttpRequest, query: Query[LogQuery]) -> HttpResponse:
    """The kept lines of the broker's log, oldest first."""
    answer = await ask(request, "log", level=query.level)
    text = "".join(
        f"{_time(at)} {level} {source}: {line}\n"
        for _, at, level, source, line in answer["entries"]
    )
    return HttpResponse(
        text,
        content_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="leveret.log"'},
    )


@router.get("/livelog", include_in_schema=False)
async def live_log(request: HttpRequest, query: Query[LiveQuery]) -> HttpResponseBase:
    """Server-sent events: each has an `id` and `[severity, source, message]`. It begins with the
    kept lines, or behind `after` or the header `Last-Event-ID`."""
    if _readers >= LOG_READERS_MAX:
        raise BrokerError(503, "busy", f"the live log has {LOG_READERS_MAX} readers already")
    last = request.headers.get("Last-Event-ID", "")
    after = int(last) if last.isascii() and last.isdecimal() and len(last) < 19 else query.after
    # Refusals are answered before the stream begins.
    first = await ask(request, "log", after=after, level=query.level)
    return StreamingHttpResponse(
        _events(request, first, after, query.level),
        content_type="text/event-stream; charset=utf-8",
        headers={"X-Accel-Buffering": "no"},
    )


async def _events(
    request: HttpRequest, answer: dict[str, Any], after: int, level: str
) -> AsyncIterator[bytes]:
    """The lines as they come, for as long as the caller may read them. A reader that is slower
    than the log misses lines; no more than the kept ones wait for it."""
    global _readers
    if _readers >= LOG_READERS_MAX:
        # Others began while this one was admitted: the client tries again and gets the error.
        return
    _readers += 1
    over = SessionEnd(getattr(request, "login", None))
    try:
        await over.check()
        yield b": live log\n\n"
        while True:
            entries = answer["entries"]
            data = b"".join(
                b"id: %d\ndata: %s\n\n" % (number, msgspec.json.encode([severity, source, text]))
                for number, _, severity, source, text in entries
            )
            yield data or b": nothing new\n\n"
            after = entries[-1][0] if entries else max(after, 0)
            told = {"after": after, "level": level, "epoch": answer["epoch"]}
            asked = asyncio.ensure_future(ask(request, "log", **told, wait_s=WAIT_S))
            answer = await over.unless(asked)
    except (BrokerError, SessionOver):
        # The broker went, or the caller signed out or may not read it any more: it asks again.
        return
    finally:
        over.close()
        _readers -= 1


def _time(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at / 1000)) + f".{at % 1000:03d}Z"
