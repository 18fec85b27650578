"""The control socket: frames in, verbs called, frames out.

A frame is a 32-bit big-endian length and a msgpack map (`control_schema.Request` in, replies and
pushes out). Requests of one connection run side by side and are answered as they finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from broker.schema.control_schema import ERRORS, FRAME_MAX, VERBS, Received
from broker.schema.errors import AMQPError
from broker.server.control.encoding import encode
from broker.server.control.open_lists import OpenLists
from broker.server.control.places import PlacesOfAll
from broker.server.control.problems import forget, watch_of
from broker.server.control.requests import (
    HANDLERS,
    Caller,
    Request,
    RequestError,
    bad_request,
    not_authorised,
)
from broker.server.control.subscriptions import Subscriptions
from broker.server.streams import streams_of
from broker.serving.long_bytes import LONG, join
from broker.settings.bounds import ROW_BYTES_MAX

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">I")


class ControlServer:
    """Listens on the control socket and serves every process that may open the file."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.sessions: set[Session] = set()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None

    async def start(self, path: Path) -> None:
        """Opens the socket, for the owner only. The data directory must be locked already: a
        socket file that is there was left behind."""
        _remove(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _bind_for_owner(listener, path)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(streams_of(self._serve), sock=listener)
        except BaseException:
            listener.close()
            raise
        self._path = path
        watch_of(self.broker)

    async def close(self) -> None:
        """Closes the socket and every session."""
        forget(self.broker)
        if self._server is not None:
            self._server.close()
            self._server = None
        for session in list(self.sessions):
            session.abort()
        await asyncio.gather(
            *(session.task for session in list(self.sessions)), return_exceptions=True
        )
        if self._path is not None:
            _remove(self._path)

    def publish(self, event: str, data: dict[str, Any]) -> None:
        """Pushes an event to every subscriber of topic `events`."""
        for session in self.sessions:
            session.subscriptions.publish(event, data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(self.broker, reader, writer)
        self.sessions.add(session)
        try:
            await session.run()
        except asyncio.CancelledError:
            pass
        finally:
            self.sessions.discard(session)
            session.release()


class Session:
    """One connection to the control socket."""

    def __init__(
        self, broker: Broker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.broker = broker
        self._reader = reader
        self._writer = writer
        self._requests: set[asyncio.Task[None]] = set()
        self.at_end: list[Callable[[], object]] = []
        """Called when the peer has closed the connection."""
        self.places = PlacesOfAll()
        self.logins: dict[int, asyncio.Task[Any]] = {}
        """Logins under way, by the numbers that the peer gave them."""
        self.lists = OpenLists(broker)
        self.subscriptions = Subscriptions(broker, self.push, self.is_writable)
        task = asyncio.current_task()
        assert task is not None
        self.task = task

    async def run(self) -> None:
        """Reads requests until the peer goes or sends what is no frame."""
        decoder = msgspec.msgpack.Decoder(Received)
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(4))
                if length > FRAME_MAX:
                    log.error("control socket: a frame of %d bytes was announced", length)
                    return
                frame = decoder.decode(await self._bytes(length))
                # Whatever has to wait waits in its task: what needs no place, as the question
                # whether the broker still answers, must be read all the same.
                task = asyncio.create_task(
                    self._take_place(frame, length), name=f"control {frame.verb[:40]}"
                )
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)
                self.places.begun(frame, task)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            log.error("control socket: cannot read a request: %s", error)
        finally:
            self.subscriptions.close()
            self.lists.end()
            for task in self._requests:
                task.cancel()
            for callback in self.at_end:
                callback()
            self._writer.close()

    async def _bytes(self, length: int) -> bytes:
        """The next ones. Of a long frame a thread joins the pieces: fresh memory takes half a
        millisecond for each MiB. Raises IncompleteReadError."""
        if length <= LONG:
            return await self._reader.readexactly(length)
        pieces: list[bytes] = []
        left = length
        while left:
            piece = await self._reader.read(min(left, LONG))
            if not piece:
                raise asyncio.IncompleteReadError(b"", length)
            pieces.append(piece)
            left -= len(piece)
        await asyncio.to_thread(join, pieces)
        return pieces.pop()

    def abort(self) -> None:
        self.task.cancel()

    def release(self) -> None:
        """Gives up what refers to it: it would be garbage in a circle."""
        del self.task, self.subscriptions

    def is_writable(self) -> bool:
        """Whether the peer has taken what was pushed before."""
        return self._writer.transport.get_write_buffer_size() < 256 * 1024

    def push(self, frame: dict[str, Any]) -> None:
        self._write(encode(frame))

    async def _take_place(self, frame: Received, length: int) -> None:
        """Answers a request once there is a place for it; its frame is of this length."""
        places, user = self.places.of(frame), frame.as_user or ""
        if places is None:
            await self._answer(frame)
            return
        try:
            await places.take(user, length, is_part=frame.verb == "list.more")
        except RequestError as error:
            await self._send(encode({"id": frame.id, "error": _refusal(frame.verb, error)}))
            return
        try:
            await self._answer(frame)
        finally:
            places.give_back(user)

    async def _answer(self, frame: Received) -> None:
        reply: dict[str, Any] = {"id": frame.id}
        try:
            reply["ok"] = await carry_out(self.broker, self, frame)
            data = encode(reply)
            if len(data) > FRAME_MAX:
                raise bad_request("the answer is too long; ask for pages or fewer columns")
        except Exception as error:
            reply.pop("ok", None)
            reply["error"] = _refusal(frame.verb, error)
            data = encode(reply)
        await self._send(data)

    async def _send(self, data: bytes) -> None:
        self._write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def _write(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(data)))
            self._writer.write(data)


def _bind_for_owner(listener: socket.socket, path: Path) -> None:
    # No process can connect before `listen`, so none connects before the mode is set.
    listener.bind(str(path))
    path.chmod(0o600)
    listener.setblocking(False)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


async def carry_out(broker: Broker, session: Session, frame: Received) -> Any:
    """Checks a request against the tables and calls its verb."""
    verb = VERBS.get(frame.verb)
    handler = HANDLERS.get(frame.verb)
    if verb is None or handler is None:
        raise RequestError("not_implemented", f"verb '{frame.verb[:100]}' does not exist")
    user = None
    if frame.as_user is not None:
        user = broker.access.users.get(frame.as_user)
        if user is None:
            raise not_authorised("user does not exist")
    caller = Caller(broker, user)
    caller.require(verb.tag)
    if verb.changes and not verb.long and memoryview(frame.args).nbytes > ROW_BYTES_MAX:
        raise bad_request(f"{frame.verb}: the request is longer than {ROW_BYTES_MAX} bytes")
    try:
        args = msgspec.msgpack.decode(frame.args, type=verb.arguments)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"{frame.verb}: {error}") from None
    if verb.scope in ("vhost", "objects"):
        caller.vhost(args.vhost)  # type: ignore[attr-defined]
    answer = await handler(Request(broker, session, caller, args))
    if verb.changes:
        await broker.synced()
    return answer


def _refusal(verb: str, error: Exception) -> dict[str, Any]:
    """How an error is answered: RabbitMQ's statuses for AMQP's errors."""
    if isinstance(error, RequestError):
        return {"status": error.status, "error": error.error, "reason": error.reason}
    if isinstance(error, AMQPError):
        word = {404: "not_found", 403: "not_authorised"}.get(error.reply_code, "bad_request")
        return {"status": ERRORS[word].status, "error": word, "reason": error.text}
    log.error("control verb %s failed", verb, exc_info=error)
    reason = f"{verb} failed inside the broker: {type(error).__name__}; its log has the details"
    return {"status": 500, "error": "internal_error", "reason": reason}
