"""A stand-in for the broker behind the WebSocket door: it notes what it is fed."""

import asyncio
from typing import Any

from broker.serving.websocket_room import Room
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

    def feed(self, data: bytes) -> None:
        assert type(data) is bytes and data
        self.received += data
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
    under_pressure = False


class Admission:
    def __init__(self, config: Config) -> None:
        self.websockets = Room(lambda: config, lambda delay, work: None)

    def give(self) -> None:
        """The door closes."""


class Broker:
    """What the door asks of the broker."""

    persister = Persister()

    def __init__(self, **settings: Any) -> None:
        self.config = Config(**settings)
        self.admission = Admission(self.config)
        self.accepted: asyncio.Queue[Connection] = asyncio.Queue()

    def accept(
        self,
        transport: Any,
        peer: tuple[str, int],
        local: tuple[str, int],
        listener: str,
        tls: Any,
    ) -> Connection:
        assert tls is None
        connection = Connection(transport, peer, listener)
        self.accepted.put_nowait(connection)
        return connection
