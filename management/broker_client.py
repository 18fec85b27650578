"""The web process's way to the broker: requests and pushes over the control socket.

One connection per process and event loop carries everything; it comes back by itself. While the
broker is away, calls fail with a clear error after a short patience, and subscriptions say so and
start anew later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
from collections.abc import AsyncGenerator
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from broker.schema.control_schema import (
    ERRORS,
    FRAME_MAX,
    LEFT_EARLY,
    Error,
    Incoming,
    Request,
)
from management.frame_writer import FrameWriter, parts_of

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">I")
_BACKOFF_FIRST_S = 0.1
_BACKOFF_LAST_S = 1.0  # less than the patience: once the broker is back, no call fails any more
_PATIENCE_S = 1.5
SILENCE_S = 10.0
"""A broker that answers nothing for so long counts as away: its process hangs or is stopped."""
_ASKED_EVERY_S = 2.0
_PUSHES_KEPT = 256
_LOST = "the broker went away before it answered; a change may or may not have been made"
_LIST_LOST = "the broker went away in the middle of a list"
_AWAY = "the broker is not running or is just starting; try again in a few seconds"


class BrokerError(Exception):
    """The broker refused or could not be asked; `control_schema.ERRORS` lists the ways."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Push:
    """One push of a subscription.

    `event`: `start` (data replaces what was known), `delta` (changed values only), `resync` (pushes
    were left out, a start follows), `away` (made here: the broker is down, a start follows when it
    is back), or the name of an event. `at`: milliseconds since 1970 by the broker's clock.
    """

    event: str
    seq: int
    at: int
    data: Any


class BrokerClient:
    """One control connection that is kept up. Safe to share between the tasks of one event loop."""

    def __init__(self, path: str | Path, silence_s: float = SILENCE_S) -> None:
        self.path = Path(path)
        self._silence_s = silence_s
        self._is_silent = False
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Incoming)
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._subscribing: set[int] = set()
        self._subscriptions: dict[int, asyncio.Queue[Push | None]] = {}
        self._frames: FrameWriter | None = None
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.connections = 0
        """How often there was a new one: what belongs to one ends with it."""

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    async def call(
        self, verb: str, *, as_user: str | None = None, timeout_s: float = 60.0, **args: Any
    ) -> Any:
        """Asks the broker and returns its answer; BrokerError says why not.

        `as_user` is whose rights count; None is the appliance itself, which may do everything.
        """
        return await self._ask(verb, as_user, args, timeout_s)

    async def authenticate(
        self, user: str, password: str, peer: str, *, again: bool = False
    ) -> dict[str, Any]:
        """The user with this password, by verb `authenticate`; BrokerError says why not. When it is
        cancelled, because the client has gone, the broker forgets what it need not check."""
        self._next_id += 1
        number, is_open = self._next_id, True
        args = {"user": user, "password": password, "peer": peer, "again": again, "login": number}
        try:
            found: dict[str, Any] = await self._ask("authenticate", None, args, 60.0)
            is_open = False
        except BrokerError as error:
            is_open = error.error == "broker_away"
            raise
        finally:
            if is_open:
                self._send_quietly("authenticate.leave", {"login": number})
        return found

    def listed(self, *, as_user: str | None = None, **args: Any) -> AsyncGenerator[dict[str, Any]]:
        """A list in slices."""
        return self.sliced("list", as_user=as_user, **args)

    async def sliced(
        self, verb: str, *, as_user: str | None = None, timeout_s: float = 60.0, **args: Any
    ) -> AsyncGenerator[dict[str, Any]]:
        """An answer in slices: that of a verb which has `slices`, then those of `list.more`.

        The broker builds the next rows when the iterator is asked for them. To be closed
        (`aclose`), which ends the list there, too. Raises BrokerError, also in the middle: rows
        are missing then. Each slice may take `timeout_s`.
        """
        self._next_id += 1
        number, is_open = self._next_id, True
        try:
            answer = await self._ask(verb, as_user, {**args, "slices": number}, timeout_s)
            connection = self.connections
            is_open = answer["more"]
            yield answer
            while is_open:
                if connection != self.connections or not self.connected:
                    raise _broker_away(_LIST_LOST)
                answer = await self._ask("list.more", as_user, {"list": number}, timeout_s)
                is_open = answer["more"]
                yield answer
        finally:
            if is_open:
                self._send_quietly("list.end", {"list": number})

    async def subscribe(self, *, as_user: str | None = None, **args: Any) -> AsyncGenerator[Push]:
        """Pushes of one subscription, across restarts of the broker and pauses of the reader.

        Ends when the iterator is closed (`async with contextlib.aclosing(...)`). Raises BrokerError
        if the broker refuses the subscription, at the start or later when rights have changed.
        """
        while True:
            try:
                sub: int = (await self._ask("subscribe", as_user, args, 60.0))["sub"]
            except BrokerError as error:
                if error.error != "broker_away":
                    raise
                yield Push("away", 0, 0, None)
                await self._connected.wait()
                continue
            pushes = self._subscriptions[sub]
            try:
                while True:
                    push = await pushes.get()
                    if push is None:
                        break
                    if push.event == "ended":
                        raise BrokerError(**push.data)
                    yield push
            finally:
                if self._subscriptions.pop(sub, None) is not None:
                    self._send_quietly("unsubscribe", {"sub": sub})

    async def close(self) -> None:
        """Ends the connection; calls under way fail, subscriptions end at their next step."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None

    # How it works.

    async def _ask(
        self, verb: str, as_user: str | None, args: dict[str, Any], timeout_s: float
    ) -> Any:
        if self._keeper is None or self._keeper.done():
            # It works for all, not for the request that came first.
            self._keeper = asyncio.create_task(
                self._keep_up(), name="control socket", context=Context()
            )
        if not self._connected.is_set():
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._connected.wait()
            except TimeoutError:
                raise _broker_away(_AWAY) from None
        self._next_id += 1
        request = Request(id=self._next_id, verb=verb, as_user=as_user, args=args)
        answer = await self._answer(request, timeout_s)
        if isinstance(answer, Error):
            raise BrokerError(answer.status, answer.error, answer.reason)
        return answer

    async def _answer(self, request: Request, timeout_s: float) -> Any:
        """What the broker answered. Its refusal is not raised here: an exception in a future that
        a frame of its traceback refers to would be garbage in a circle."""
        verb = request.verb
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = future
        try:
            if verb == "subscribe":
                self._subscribing.add(request.id)
            self._send(request)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            reason = f"the broker did not answer {verb} within {timeout_s:g} seconds"
            raise _broker_away(reason) from None
        finally:
            self._waiting.pop(request.id, None)
            if future.done() and not future.cancelled():
                self._subscribing.discard(request.id)
            elif verb in LEFT_EARLY:
                # The caller has gone or waits no longer: the broker need not go on either.
                self._send_quietly("request.leave", {"request": request.id})

    def _send(self, request: Request) -> None:
        if self._frames is None:
            raise _broker_away(_AWAY)
        parts = parts_of(self._encoder, request)
        if (length := sum(map(len, parts))) > FRAME_MAX:
            raise BrokerError(
                400, "bad_request", f"request of {length} bytes is over {FRAME_MAX} bytes"
            )
        self._frames.write(*parts)

    def _send_quietly(self, verb: str, args: dict[str, Any]) -> None:
        self._next_id += 1
        with contextlib.suppress(BrokerError):
            self._send(Request(id=self._next_id, verb=verb, args=args))

    async def _keep_up(self) -> None:
        delay = _BACKOFF_FIRST_S
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self.path))
            except OSError as error:
                log.debug("control socket %s: %s", self.path, error)
            else:
                delay = _BACKOFF_FIRST_S
                self._frames = FrameWriter(writer)
                self.connections += 1
                if not self._is_silent:  # else its first answer says that it is back
                    self._connected.set()
                watch = asyncio.create_task(self._watch(writer), name="control socket watch")
                try:
                    await self._read(reader)
                finally:
                    watch.cancel()
                    self._disconnected()
            await asyncio.sleep(delay * random.uniform(0.75, 1.25))  # noqa: S311
            delay = min(delay * 2, _BACKOFF_LAST_S)

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        """Asks whether the broker still answers, and ends the connection when it does not: the
        system keeps that of a process that hangs."""
        while True:
            self._next_id += 1
            try:
                await self._answer(Request(id=self._next_id, verb="whoami"), self._silence_s)
            except BrokerError as error:
                if not self._is_silent:
                    log.warning("%s: it counts as away until it does", error.reason)
                self._is_silent = True
                writer.transport.abort()
                return
            self._is_silent = False
            self._connected.set()
            await asyncio.sleep(_ASKED_EVERY_S)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(4))
                if length > FRAME_MAX:
                    log.error(
                        "control socket: frame of %d bytes announced; connection dropped", length
                    )
                    return
                self._take(self._decoder.decode(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError):
            return
        except msgspec.DecodeError as error:
            log.error("control socket: cannot read a frame of the broker: %s", error)

    def _take(self, frame: Incoming) -> None:
        if frame.event is not None:
            self._take_push(frame)
            return
        future = self._waiting.get(frame.id) if frame.id is not None else None
        if future is None or future.done():
            if frame.id in self._subscribing and frame.error is None:
                # The caller was cancelled.
                self._send_quietly("unsubscribe", {"sub": frame.ok["sub"]})
            self._subscribing.discard(frame.id or 0)
            return
        if frame.error is not None:
            future.set_result(frame.error)
            return
        if frame.id in self._subscribing:
            # Pushes may follow in the same read, before the caller runs again.
            self._subscriptions[frame.ok["sub"]] = asyncio.Queue()
        future.set_result(frame.ok)

    def _take_push(self, frame: Incoming) -> None:
        pushes = self._subscriptions.get(frame.sub) if frame.sub is not None else None
        if pushes is None or frame.event is None or frame.sub is None:
            return
        if pushes.qsize() < _PUSHES_KEPT:
            pushes.put_nowait(Push(frame.event, frame.seq, frame.at, frame.data))
            return
        # The reader is too slow: it gets a new start instead of an ever longer queue.
        del self._subscriptions[frame.sub]
        self._send_quietly("unsubscribe", {"sub": frame.sub})
        while not pushes.empty():
            pushes.get_nowait()
        pushes.put_nowait(Push("resync", frame.seq, frame.at, None))
        pushes.put_nowait(None)

    def _disconnected(self) -> None:
        self._connected.clear()
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        for future in self._waiting.values():
            if not future.done():
                status = ERRORS["broker_away"].status
                future.set_result(Error(status, "broker_away", _LOST))
        self._waiting.clear()
        self._subscribing.clear()
        subscriptions, self._subscriptions = self._subscriptions, {}
        for pushes in subscriptions.values():
            pushes.put_nowait(Push("away", 0, 0, None))
            pushes.put_nowait(None)


def _broker_away(reason: str) -> BrokerError:
    return BrokerError(ERRORS["broker_away"].status, "broker_away", reason)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Path, BrokerClient]] = (
    WeakKeyDictionary()
)


def shared(path: str | Path) -> BrokerClient:
    """The client for a control socket, the same for every caller on this event loop."""
    clients = _shared.setdefault(asyncio.get_running_loop(), {})
    return clients.setdefault(Path(path), BrokerClient(path))
