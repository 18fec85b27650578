"""Bounds on request bodies, kept while they arrive: nothing longer is ever collected, and nobody
is waited for who sends a byte now and then."""

import asyncio
import contextlib
import json
from typing import Any

from django.conf import settings

from management.hosts import header
from management.paths import Application, Receive, Scope, Send

BODY_MAX = 10 * 1024 * 1024
READ_ON_S = 5.0
LEAST_RATE = 1024
"""Bytes a second that a body has to come at, once `http_timeout` is over."""
REASON = "Exceeded HTTP request body size limit"


class TooLong(Exception):
    pass


class TooSlow(Exception):
    pass


class BodyLimit:
    """ASGI wrapper: 400 in RabbitMQ's words for a body over `BODY_MAX` bytes, 408 for one that does
    not come."""

    def __init__(self, application: Application, limit: int = BODY_MAX) -> None:
        self.application = application
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        announced = header(scope, b"content-length")
        if announced.isdecimal() and int(announced) > self.limit:
            await _refuse(receive, send, self.limit)
            return
        received = 0
        whole = False
        latest = asyncio.get_running_loop().time() + settings.APPLIANCE.http_timeout

        async def counted() -> dict[str, Any]:
            nonlocal received, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(latest + received / LEAST_RATE):
                    message = await receive()
            except TimeoutError:
                raise TooSlow from None
            received += len(message.get("body", b""))
            if received > self.limit:
                raise TooLong
            whole = not message.get("more_body", False)
            return message

        try:
            await self.application(scope, counted, send)
        except TooLong:
            await _refuse(receive, send, self.limit)
        except TooSlow:
            await _answer(send, 408, "timeout", "The request's body did not come in time")


async def _refuse(receive: Receive, send: Send, patience: int) -> None:
    """Answer, after reading on for a while: a client that is still sending would not see it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READ_ON_S):
            message = await receive()
            while message.get("more_body") and patience > 0:
                patience -= len(message["body"])
                message = await receive()
    await _answer(send, 400, "bad_request", REASON)


async def _answer(send: Send, status: int, error: str, reason: str) -> None:
    body = json.dumps({"error": error, "reason": reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
