"""A real broker in this process, for tests of what reads and changes its objects.

It listens at its control socket alone; a client of it (`Peer`) has no socket, its session is fed
directly. What a broker does by the clock, samples and looks at the machine, a test does when it
wants it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from broker.access.passwords import SHA256, rabbit_hash
from broker.kernel import clock
from broker.queues.types import MessageQueue
from broker.server.app import Broker
from broker.server.control.problems import forget
from broker.settings.config import Config
from broker.stats import Stats
from broker.vhosts.vhost import VHost
from broker.wire.channel import Channel
from tests.amqp import raw
from tests.store.driven import Place, Taker

HANDSHAKE, CLOSED = 1, 4  # `Connection.phase`
CONNECTION_CLOSE, DECLARE_OK = b"\x00\x0a\x00\x32", b"\x00\x28\x00\x0b"
MEMORY = Path("/dev/shm")
USERS = json.dumps(
    {
        "users": [
            {
                "name": "guest",
                "password_hash": rabbit_hash("guest"),
                "hashing_algorithm": SHA256,
                "tags": ["administrator"],
                "loopback_only": True,
            }
        ],
        "permissions": [
            {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        ],
    }
)
"""As a new broker makes it, but with a hash that takes no time."""
_ports = itertools.count(40_000)


class Wire:
    """The transport of one connection: what is written is kept until it is looked at."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.ended = False

    def write(self, data: bytes) -> None:
        self.out += data

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Peer(Wire):
    """A client that has sent the protocol header (`connect` has the rest). It answers
    connection.close, and is gone when its session ends. What it sends is done in this turn of the
    loop, or in a later one where all clients together ask for much: `fence` tells."""

    def __init__(self, broker: Broker, **properties: Any) -> None:
        super().__init__()
        self.closed: tuple[int, str] | None = None
        """Code and text of the broker's connection.close, once it has come."""
        self.broker = broker
        self._read = self._fences = 0
        number = next(_ports)
        properties.setdefault("connection_name", f"client {number}")
        properties.setdefault("capabilities", raw.CAPABILITIES)
        self.session = broker.accept(self, ("127.0.0.1", number), ("127.0.0.1", 5672), "amqp")
        self.session.introduce(properties)
        self.feed(raw.PROTOCOL_HEADER)

    @property
    def channel(self) -> Channel:
        """The broker's side of channel 1."""
        return self.session.channels[1]

    @property
    def name(self) -> str:
        """The name of the connection."""
        return self.session.name

    def feed(self, data: bytes) -> None:
        """Bytes that the client sends."""
        self.session.feed(data)

    def call(self, channel: int, name: str, **fields: Any) -> None:
        """Sends a method; its answer comes at the end of the turn, to `out`."""
        self.feed(raw.method(channel, name, **fields))

    async def fence(self) -> None:
        """Returns when all that was sent is done, and what it let queues deliver is delivered."""
        await until(lambda: 1 in self.session.channels)
        answered = self._fences + 1
        self.call(1, "exchange.declare", exchange="amq.direct", type="direct", passive=True)
        await until(lambda: self._fences >= answered)

    async def publish(self, key: str, count: int = 1, body: bytes = b"x", **values: Any) -> None:
        """Publishes the message so many times to the default exchange; `values` are its
        properties."""
        self.feed(raw.publish(1, "", key, body, **values) * count)
        await self.fence()

    async def consume(self, queue: str, tag: str, prefetch: int = 0, **arguments: Any) -> None:
        """Consumes with acknowledgements, of which `prefetch` may be due."""
        self.call(1, "basic.qos", prefetch_count=prefetch)
        self.call(1, "basic.consume", queue=queue, consumer_tag=tag, arguments=arguments)
        await self.fence()

    async def ack(self, tag: int) -> None:
        """Acknowledges the delivery of this number."""
        self.call(1, "basic.ack", delivery_tag=tag)
        await self.fence()

    async def is_closed(self) -> tuple[int, str]:
        """Code and text of the broker's connection.close, which is awaited."""
        await until(lambda: self.closed is not None)
        assert self.closed is not None
        return self.closed

    async def leave(self) -> None:
        """The client is gone, without a word."""
        if self.session.phase < CLOSED:
            self.session.lost("the client left")
        await until(lambda: self.session.id not in self.broker.connections)

    def write(self, data: bytes) -> None:
        super().write(data)
        while self._read < len(self.out):
            kind, channel, size = struct.unpack_from(">BHI", self.out, self._read)
            payload = bytes(self.out[self._read + 7 : self._read + 7 + size])
            self._read += size + 8
            if kind != raw.METHOD:
                continue
            self._fences += payload.startswith(DECLARE_OK)
            if payload.startswith(CONNECTION_CLOSE):
                told = raw.decode_method(payload, channel)
                self.closed = told.reply_code, told.reply_text
                asyncio.get_running_loop().call_soon(self._answer_close)

    def _answer_close(self) -> None:
        if not self.ended:
            self.call(0, "connection.close-ok")

    def write_eof(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            asyncio.get_running_loop().call_soon(self.session.lost, "")


def put_user(broker: Broker, name: str, *tags: str, vhosts: tuple[str, ...] = ("/",)) -> None:
    """A user with the password "secret", and all permissions in the vhosts."""
    broker.access.put_user(name, list(tags), rabbit_hash("secret"), SHA256)
    for vhost in vhosts:
        broker.access.put_permission(name, vhost, ".*", ".*", ".*")


async def connect(broker: Broker, user: str, vhost: str = "/", **properties: Any) -> Peer:
    """A client of this user, who is made if there is none, with channel 1. `properties` are the
    client's. It needs no password. Raises AssertionError if the broker does not let it in."""
    if user not in broker.access.users:
        put_user(broker, user, vhosts=(vhost,))
    client = Peer(broker, **properties)
    await until(lambda: client.session.phase >= HANDSHAKE)
    client.session.logged_in(user)
    client.call(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
    client.call(0, "connection.open", virtual_host=vhost)
    client.call(1, "channel.open")
    await until(lambda: 1 in client.session.channels or client.closed is not None)
    assert client.closed is None, client.closed
    return client


def publish(vhost: VHost, queue: str, count: int = 1, body: bytes = b"x") -> None:
    """Publishes the message so many times over no channel."""
    for _ in range(count):
        assert vhost.publish(vhost.exchange(""), [queue], {}, body)


def configure(broker: Broker, **settings: Any) -> None:
    """Changes settings as a reload does."""
    broker.config = dataclasses.replace(broker.config, **settings)


async def until(is_so: Callable[[], object]) -> None:
    """Returns when it is so; the loop goes on meanwhile."""
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 (what it waits for has no event)
            await asyncio.sleep(0)


def get(queue: MessageQueue, count: int = 1) -> list[Place]:
    """Takes so many messages that are in memory, and settles none: their places."""
    places = []
    for _ in range(count):
        taker = Taker()
        queue.get(taker)
        queue.deliver_pending()
        assert taker.body is not None
        places.append(taker.place)
    return places


def ack(queue: MessageQueue, count: int = 1) -> None:
    """Takes so many messages that are in memory, and acknowledges them."""
    for place in get(queue, count):
        queue.settle_place(place)


class Clock:
    """Milliseconds that pass when told: the clock of the statistics."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def sample(broker: Broker, clock: Clock, seconds: int = 1) -> None:
    """So many samples, a second apart."""
    for _ in range(seconds):
        clock.now += 1000
        for _ in broker.stats.sample(broker):
            pass


def settings(directory: Path, **others: Any) -> Config:
    """Those of a broker in a test's process: no port, no sync, nothing kept for later."""
    return Config(
        **{
            "data_dir": directory,
            "bind": (),
            "metrics_port": 0,
            "disk_reserve": 0,
            "history_bytes_max": 0,
            "problem_grace": 0.0,
            "login_refusal_delay": 0.0,
            **others,
        }
    )


def forget_figures(broker: Broker, clock_ms: Callable[[], int] = clock.now) -> None:
    """The statistics begin anew, by this clock, and so does the watch over problems."""
    forget(broker)
    broker.measure(Stats(clock_ms))


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A directory for data, in memory where there is such a file system: no sync waits there."""
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="leveret-inside-", dir=where) as name:
        yield Path(name)


class NoGarbage:
    """Leaves the garbage collector of the tests' process alone."""

    def start(self, now: float) -> None: ...
    def tick(self, now: float, is_quiet: bool, is_short: bool = False) -> None: ...
    def walk_over_young(self) -> None: ...
    def stop(self) -> None: ...


@contextlib.asynccontextmanager
async def running(directory: Path, **others: Any) -> AsyncIterator[Broker]:
    """A broker on the directory, from its start to its end."""
    (directory / "users.json").write_text(USERS)
    broker = Broker(settings(directory, **others))
    broker._periodic._garbage = NoGarbage()  # type: ignore[assignment]
    broker.stall.look = lambda: None  # type: ignore[method-assign]
    broker.recover()
    await broker.start()
    await broker.sampling.close()
    await broker.watch.close()
    forget_figures(broker)
    try:
        yield broker
    finally:
        for session in list(broker.connections.values()):
            session.lost("the test is over")
        # A stop would look for them every 20 ms.
        await until(lambda: not broker.connections)
        forget(broker)
        await broker.stop()
