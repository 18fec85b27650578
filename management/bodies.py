"""Bodies of requests: read when it is known who sends them, at a least pace, in bounded memory.

A request goes through the middlewares without its body. Once its view is known, and its user let
in, `take` reads it. What is never read, because the answer is a refusal, is thrown away behind the
answer for a few seconds, so that a client that is still sending gets to see it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from broker.serving.addresses import address_of
from broker.serving.long_bytes import LONG, join
from broker.settings.bounds import FORM_MAX
from management import refusals
from management.broker_client import BrokerError
from management.hosts import header
from management.memory import give_back_soon
from management.middleware import Middleware
from management.paths import Application, Receive, Scope, Send
from management.peer import peer_of
from management.unfinished import STRANGERS, USERS, Room

BODY_MAX = 10 * 1024 * 1024
READ_ON_S = 5.0
REASON = "Exceeded HTTP request body size limit"
BODY = "leveret.body"
"""Key of a request's scope; absent where no body follows the head."""
WIRE = "leveret.wire"
"""Key of a request's scope: the connection, as far as bodies need it."""


def _do_nothing() -> None: ...


class Wire:
    """What bodies need of a connection. `is_wanted`: the body at hand is read, until then it waits
    in the socket; `is_let_in`: it is counted as its user's."""

    __slots__ = ("_changed", "close", "is_let_in", "is_wanted", "on_lost")

    def __init__(self, close: Callable[[], None], changed: Callable[[], None]) -> None:
        self.close = close
        self._changed = changed
        self.is_wanted = False
        self.is_let_in = False
        self.on_lost: Callable[[], None] | None = None

    def want(self) -> None:
        """From now on the body at hand is read."""
        if not self.is_wanted:
            self.is_wanted = True
            self._changed()

    def release(self) -> None:
        """The connection is lost: gives up what refers to it, and so to this."""
        self.close = self._changed = _do_nothing
        self.on_lost = None


class Body:
    """The body of one request, and what goes back and forth while it is unread."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, announced: int | None) -> None:
        self._wire: Wire | None = scope.get(WIRE)
        self._receive = receive
        self._send = send
        self._announced = announced
        self._expects = header(scope, b"expect").lower() == "100-continue"
        self._begun = False
        self._is_whole = False
        self._is_given_up = False
        self._changed = asyncio.Event()
        self._room: Room | None = None
        self._holder = ""
        self._held = 0
        if self._wire is not None:
            self._wire.on_lost = self._changed.set

    # What Django sees.

    async def receive(self) -> dict[str, Any]:
        """At once an empty body; then, when the true one is read or the client gone, what comes."""
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._changed.wait()
        return await self._receive() if self._is_whole else {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Passes the answer on; behind the last of it, what is left of an unread body is read."""
        if self._is_whole:
            await self._send(message)
        elif message["type"] == "http.response.start":
            if self._expects and not self._held:
                # It may send the body or not: what comes next cannot be derived from it.
                self._is_given_up = True
            if self._is_given_up or self._announced is None or self._announced > BODY_MAX:
                # Told before it is done: a client that learned it only from the end of the
                # connection may have sent its next request by then.
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await self._send(message)
        elif message.get("more_body"):
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._read_on()
            if not self._is_whole and self._wire is not None:
                self._wire.close()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read_on(self) -> None:
        if self._is_given_up:
            return
        if self._wire is not None:
            self._wire.want()
        left = BODY_MAX
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_ON_S):
                while left > 0 and not self._is_whole:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        return
                    left -= len(message.get("body", b""))
                    self._is_whole = not message.get("more_body", False)

    # Reading.

    async def read(self, room: Room, holder: str, limit: int) -> io.BytesIO:
        """The whole body. Raises BrokerError: 400 if it is longer than `limit`, 408 if it does not
        come, 503 if `holder` has too much in memory already, or all together have."""
        if self._announced is not None and self._announced > limit:
            raise BrokerError(400, "bad_request", REASON)
        self._room, self._holder = room, holder
        if self._wire is not None:
            self._wire.is_let_in = True
            self._wire.want()
        pieces: list[bytes] = []
        pace = _Pace(settings.APPLIANCE.http_timeout, settings.APPLIANCE.http_body_rate_min)
        try:
            while not self._is_whole:
                data = await self._next(pace)
                if self._held + len(data) > limit:
                    raise BrokerError(400, "bad_request", REASON)
                self._take(len(data))
                pieces.append(data)
            if self._held < LONG:
                join(pieces)
            else:
                await asyncio.to_thread(join, pieces)
        except BaseException:
            self.give_back()
            raise
        self._changed.set()
        return io.BytesIO(pieces.pop())

    async def _next(self, pace: _Pace) -> bytes:
        try:
            async with asyncio.timeout(pace.left_s()):
                message = await self._receive()
        except TimeoutError:
            self._is_given_up = True
            raise BrokerError(
                408,
                "timeout",
                "The request's body did not come in time (http_timeout, http_body_rate_min)",
            ) from None
        if message["type"] != "http.request":
            self._changed.set()
            # Django ends this task when it gets the disconnect.
            await asyncio.Event().wait()
        data: bytes = message.get("body", b"")
        pace.came(len(data))
        self._is_whole = not message.get("more_body", False)
        return data

    def _take(self, size: int) -> None:
        assert self._room is not None
        if not self._room.take(self._holder, size):
            raise BrokerError(
                503,
                "busy",
                "Bodies of requests that are not finished take too much memory, those of "
                f"{ascii(self._holder)[:100]} or all together (http_unfinished_max); try again",
            )
        self._held += size

    def give_back(self) -> None:
        """The request is over, or its body is refused."""
        if self._wire is not None:
            self._wire.is_let_in = False
            self._wire.on_lost = None
        if self._room is not None and self._held:
            self._room.give_back(self._holder, self._held)
            if self._held >= LONG:
                give_back_soon()
            self._held = 0


class _Pace:
    """How long a body may still take: a pause of `grace_s` at most, and so much less the further it
    is behind `rate` bytes a second."""

    def __init__(self, grace_s: float, rate: int) -> None:
        self._grace_s = grace_s
        self._rate = rate
        self._until = time.monotonic() + grace_s

    def left_s(self) -> float:
        return self._until - time.monotonic()

    def came(self, size: int) -> None:
        """`size` bytes came. Those that came fast do not make up for a pause later."""
        self._until = min(self._until + size / self._rate, time.monotonic() + self._grace_s)


class Bodies:
    """ASGI wrapper: hands requests on without their bodies, which stay unread until `take`."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = announced(scope)
        if scope["type"] != "http" or length == 0:
            await self.application(scope, receive, send)
            return
        body = Body(scope, receive, send, length)
        try:
            await self.application({**scope, BODY: body}, body.receive, body.send)
        finally:
            body.give_back()


def announced(scope: Scope) -> int | None:
    """How long the body is; None if it comes in chunks of unknown number."""
    if header(scope, b"transfer-encoding"):
        return None
    length = header(scope, b"content-length")
    return int(length) if length.isdecimal() else 0


async def take(request: HttpRequest, user: str | None, limit: int = BODY_MAX) -> None:
    """Reads the request's body, if one comes; it is counted as the user's, or as that of the peer's
    address. Raises BrokerError."""
    scope: Scope = request.scope
    body: Body | None = scope.get(BODY)
    if body is None:
        return
    if user is not None:
        kept = await body.read(USERS, user, limit)
    else:
        kept = await body.read(STRANGERS, address_of(peer_of(scope)), limit)
    request._stream = kept


class BodyMiddleware(Middleware):
    """Reads the bodies of forms, once their view is known and has been found open to the user.
    Those of the API are read behind its own check of credentials."""

    async def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if request.path.startswith("/api/") or request.method in ("GET", "HEAD"):
            return None
        try:
            if request.user.is_authenticated:
                await take(request, request.user.name)
            else:
                await take(request, None, FORM_MAX)
        except BrokerError as refusal:
            return refusals.answer(request, refusal)
        return None
