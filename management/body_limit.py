"""A bound on request bodies, kept while they arrive: nothing longer is ever collected."""

import asyncio
import contextlib
import json

from management.hosts import header
from management.paths import Application, Receive, Scope, Send

BODY_MAX = 10 * 1024 * 1024
READ_ON_S = 5.0
REASON = "Exceeded HTTP request body size limit"


class TooLong(Exception):
    pass


class BodyLimit:
    """ASGI wrapper: 400 in RabbitMQ's words for a body over `BODY_MAX` bytes."""

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

        async def counted() -> dict:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.limit:
                raise TooLong
            return message

        try:
            await self.application(scope, counted, send)
        except TooLong:
            await _refuse(receive, send, self.limit)


async def _refuse(receive: Receive, send: Send, patience: int) -> None:
    """Answer, after reading on for a while: a client that is still sending would not see it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READ_ON_S):
            message = await receive()
            while message.get("more_body") and patience > 0:
                patience -= len(message["body"])
                message = await receive()
    body = json.dumps({"error": "bad_request", "reason": REASON}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
