"""A stand-in for the broker behind the WebSocket door: it notes what it is fed."""

import asyncio
from typing import Any

from broker.settings.config import Config


class Connection:
    """Notes every byte; `pause_after` bytes it asks the door to stop reading."""

    def __init__(self, transport: Any, peer: tuple[str, int], listener: str) -> None:
        self.transport = transport
        self.peer = peer
        self.listener = listener
        self.user: str | None = None
        self.received = bytearray()
        self.reasons: list[str] = []
        self.writable_calls = 0
        self.pause_writing_calls = 0
        self.pause_after: int | None = None
        self.changed = asyncio.Event()
        self.fd = -1

    def write_messages(self) -> None:
        """Writes are messages; the tests give theirs a head themselves."""

    def receive_buffer(self, data: memoryview, length: int) -> None:
        assert length
        self.received += data[:length]
        if self.pause_after is not None and len(self.received) >= self.pause_after:
            self.pause_after = None
            self.transport.pause_reading()
        self.changed.set()

    def discard(self, size: int) -> None:
        """Something came after the end."""

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)
        self.changed.set()

    def pause_writing(self) -> None:
        self.pause_writing_calls += 1

    def writable(self) -> None:
        self.writable_calls += 1
        self.changed.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Persister:
    tail_bytes = 0


class Pressure:
    def limit(self, connection: Connection, before: int) -> None:
        """Memory is never short."""


class Admission:
    def give(self) -> None:
        """The door closes."""


class Sockets:
    """The loop is asyncio's, which reads all sockets itself."""

    def watch(self, fd: int, handler: Any) -> None: ...
    def forget(self, fd: int) -> None: ...


class Turn:
    offered = 256 * 1024


class Broker:
    """What the door asks of the broker."""

    persister = Persister()
    pressure = Pressure()
    sockets = Sockets()
    turn = Turn()

    def __init__(self, **settings: Any) -> None:
        self.config = Config(**settings)
        self.admission = Admission()
        self.receive_buffer = memoryview(bytearray(256 * 1024))
        self.accepted: asyncio.Queue[Connection] = asyncio.Queue()

    def accept(
        self,
        transport: Any,
        peer: tuple[str, int],
        local: tuple[str, int],
        listener: str,
        fd: int,
        tls: Any,
    ) -> Connection:
        assert tls is None
        connection = Connection(transport, peer, listener)
        self.accepted.put_nowait(connection)
        return connection
