"""A bound on request bodies, kept while they arrive: nothing longer is ever collected."""

import json

from management.hosts import header
from management.paths import Application, Receive, Scope, Send

BODY_MAX = 10 * 1024 * 1024
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
            await _refuse(send)
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
            await _refuse(send)


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": "bad_request", "reason": REASON}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
