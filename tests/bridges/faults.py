"""Faults of all kinds, one after the other, while a shovel or a link of federation carries numbered
messages: none that the source has confirmed is lost, and a shovel marks each double but the first.

`python -m tests.bridges --cycles 100` (`make bridge-faults`) is the long form of `test_cycles.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.client.aio import Channel, connect
from broker.client.errors import ClientError
from broker.client.message import Message
from broker.client.properties import encode
from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.bench.processes import free_port
from tests.bridges.conftest import Pair, endpoint_of, taken, until

MARK = "x-shovel-redelivered"
NAME = "road"
BATCH = 50
AT_ONCE_S = 0.02
"""Pause between two batches of the publisher."""
SETTLED_S = 0.3
PERSISTENT = encode({"delivery_mode": 2})
DOWN = (ClientError, OSError, BrokerError)


class Proxy:
    """A TCP proxy that can cut its connections, or let nothing through for a while."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            away, back = await asyncio.open_connection("127.0.0.1", self._to)
            self._writers.add(back)
            for pipe in (self._pipe(reader, back), self._pipe(away, writer)):
                task = asyncio.create_task(pipe)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return
        writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Ends all connections."""
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()

    async def stall(self, seconds: float) -> None:
        """Lets nothing through for a while, and cuts everything then."""
        self._flows.clear()
        await asyncio.sleep(seconds)
        self.cut()
        self._flows.set()

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()


class Road:
    """Two brokers, what carries messages from `source` to `target`, and a publisher. `kind`:
    shovel, or link (whose source is the other broker)."""

    def __init__(self, directory: Path, kind: str, seed: int = 1) -> None:
        self.kind = kind
        self.pair = Pair(directory / "here", amqp_port=free_port())
        self.far = Appliance("broker", directory / "far", amqp_port=free_port())
        is_shovel = kind == "shovel"
        self.source = self.pair.broker if is_shovel else self.far
        self.target = self.far if is_shovel else self.pair.broker
        self.confirmed: set[bytes] = set()
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._last = 0
        self._proxy = Proxy(self.far.settings["amqp_port"])

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        for directory in (self.pair.broker.data_dir.parent, self.far.data_dir.parent):
            directory.mkdir(parents=True, exist_ok=True)
        self.far.start()
        self.pair.start()
        await self._proxy.start()
        for broker in (self.source, self.target):
            async with await connect(endpoint_of(broker)) as at, at.channel() as channel:
                await channel.call("queue.declare", queue=NAME, durable=True)
                if self.kind == "link":
                    named = {"exchange": NAME, "type": "fanout", "durable": True}
                    await channel.call("exchange.declare", **named)
                    if broker is self.target:
                        await channel.call("queue.bind", queue=NAME, exchange=NAME)
        far = f"amqp://guest:guest@127.0.0.1:{self._proxy.port}"
        common = {"reconnect-delay": 1}
        if self.kind == "shovel":
            value = {"src-uri": "amqp://", "src-queue": NAME, "dest-uri": far, "dest-queue": NAME}
            await self.put("shovel", {**value, "src-prefetch-count": 200, **common})
            return
        await self.put("federation-upstream", {"uri": far, "prefetch-count": 200, **common})
        async with self.control() as control:
            await control.call(
                "policy.put",
                vhost="/",
                name=NAME,
                pattern=f"^{NAME}$",
                definition={"federation-upstream": NAME},
                apply_to="exchanges",
                priority=1,
            )

    async def put(self, component: str, value: dict[str, Any]) -> None:
        async with self.control() as control:
            named = {"component": component, "vhost": "/", "name": NAME}
            await control.call("parameter.put", as_user="guest", **named, value=value)

    @contextlib.asynccontextmanager
    async def control(self) -> AsyncIterator[BrokerClient]:
        client = BrokerClient(self.pair.broker.control_socket)
        try:
            yield client
        finally:
            await client.close()

    async def stop(self) -> None:
        await self._proxy.stop()
        self.pair.close()
        self.far.close()

    async def row(self) -> dict[str, Any]:
        """State of what carries; empty while that is not known."""
        try:
            async with self.control() as control:
                verb = "shovel.list" if self.kind == "shovel" else "federation.list"
                rows: list[dict[str, Any]] = await control.call(verb, vhost="/")
                return rows[0] if rows else {}
        except BrokerError:
            return {}

    # -- messages ----------------------------------------------------------------------------------

    async def publish(self) -> None:
        """Publishes without end, through all faults of the source; what is not confirmed may be
        there or not."""
        while True:
            try:
                async with await connect(endpoint_of(self.source)) as at, at.channel() as channel:
                    await channel.select_confirms()
                    while True:
                        await self._batch(channel)
                        await asyncio.sleep(AT_ONCE_S)
            except DOWN:
                await asyncio.sleep(AT_ONCE_S)

    async def _batch(self, channel: Channel) -> None:
        refused: list[Any] = []
        channel.on_return = lambda message, _: refused.append(message)
        channel.on_refused = refused.extend
        exchange, key = (b"", NAME.encode()) if self.kind == "shovel" else (NAME.encode(), b"k")
        bodies = [b"%012d" % (self._last + number) for number in range(BATCH)]
        self._last += BATCH
        for body in bodies:
            channel.core.publish(exchange, key, PERSISTENT, body, True)
        channel.connection.flush()
        await channel.confirms_below(1)
        if not refused:
            self.confirmed.update(bodies)

    async def _count(self, broker: Appliance) -> int:
        """How many messages are ready in the queue of this broker; -1 while it is away."""
        try:
            async with await connect(endpoint_of(broker)) as at, at.channel() as channel:
                reply = await channel.call("queue.declare", queue=NAME, passive=True)
                return int(reply["message_count"])
        except DOWN:
            return -1

    async def goes_on(self) -> None:
        """Waits until all that was confirmed before has come, and the row says that it runs."""
        wanted = len(self.confirmed)
        row: dict[str, Any] = {}

        async def does() -> bool:
            nonlocal row
            row = await self.row()
            return row.get("state") == "running" and await self._count(self.target) >= wanted

        await until(does, lambda: f"{row}\n{self.pair.bridges.log()[-3000:]}")

    async def drained(self) -> list[Message]:
        """All messages at the target, once nothing is on its way any more."""

        async def is_over() -> bool:
            row = await self.row()
            if row.get("state") != "running" or row["pending"]:
                return False
            return self.kind == "link" or await self._count(self.source) == 0

        await self.goes_on()
        await until(is_over, lambda: self.pair.bridges.log()[-3000:])
        async with await connect(endpoint_of(self.target)) as at:
            return await taken(at, NAME, await self._count(self.target), is_there=True)

    # -- faults ------------------------------------------------------------------------------------

    async def kill_bridges(self) -> None:
        """kill -9 of the process that carries."""
        self.pair.bridges.kill()
        self.pair.bridges.start(wait=False)

    async def kill_source(self) -> None:
        """kill -9 of the broker that messages are taken from."""
        self.source.kill()
        self.source.start()

    async def kill_destination(self) -> None:
        """kill -9 of the broker that gets the messages."""
        self.target.kill()
        self.target.start()

    async def cut(self) -> None:
        """The network ends all connections between the two."""
        self._proxy.cut()

    async def stall(self) -> None:
        """The network is silent for a while, and then its connections end."""
        await self._proxy.stall(self._random.uniform(0.2, 1.0))

    async def block(self) -> None:
        """The destination has no disk space: it blocks publishers."""
        self.target.kill()
        self.target.settings["disk_free_limit"] = "8000 TiB"
        self.target.start()
        if self.kind == "shovel":
            await self._until_state("blocked")
        del self.target.settings["disk_free_limit"]
        self.target.kill()
        self.target.start()

    async def close(self) -> None:
        """Somebody closes every connection at the destination."""
        client = BrokerClient(self.target.control_socket)
        try:
            await client.call("connection.close_user", user="guest", reason="a test")
        finally:
            await client.close()

    async def refuse(self) -> None:
        """The queue at the destination is full and refuses."""
        client = BrokerClient(self.target.control_socket)
        named = {"vhost": "/", "name": "full"}
        try:
            await client.call(
                "policy.put",
                **named,
                pattern=f"^{NAME}$",
                definition={"max-length": 1, "overflow": "reject-publish"},
                apply_to="queues",
                priority=2,
            )
            await self._until_state("blocked")
            await client.call("policy.delete", **named)
        finally:
            await client.close()

    async def _until_state(self, state: str) -> None:
        row: dict[str, Any] = {}

        async def is_so() -> bool:
            nonlocal row
            row = await self.row()
            return row.get("state") == state

        await until(is_so, lambda: f"{row}\n{self.pair.bridges.log()[-3000:]}")

    @property
    def faults(self) -> list[Callable[[], Awaitable[None]]]:
        """All of them."""
        return [
            self.kill_bridges,
            self.kill_source,
            self.kill_destination,
            self.cut,
            self.stall,
            self.block,
            self.close,
            self.refuse,
        ]


class Found:
    """What has come of it."""

    def __init__(self, road: Road, messages: list[Message]) -> None:
        came = Counter(message.body for message in messages)
        marked = Counter(message.body for message in messages if _is_marked(message))
        self.confirmed = len(road.confirmed)
        self.lost = len(road.confirmed - set(came))
        self.doubles = sum(count - 1 for count in came.values())
        self.unmarked = sum(max(0, count - 1 - marked[body]) for body, count in came.items())
        self.faults = road.counts

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return (
            f"{self.confirmed:,} messages confirmed at the source, {self.lost} lost,"
            f" {self.doubles:,} doubles, {self.unmarked} of them not marked; {faults}"
        )


def _is_marked(message: Message) -> bool:
    return (message.decoded().get("headers") or {}).get(MARK) is True


async def run(
    directory: Path, kind: str, cycles: int, seed: int, tell: Callable[[str], None]
) -> Found:
    """So many faults, each of a kind that was not had in this round yet; what has come of it."""
    road = Road(directory, kind, seed)
    chosen = random.Random(seed)
    try:
        await road.start()
        publisher = asyncio.create_task(road.publish())
        round_: list[Callable[[], Awaitable[None]]] = []
        for cycle in range(cycles):
            if not round_:
                round_ = road.faults
                chosen.shuffle(round_)
            await road.goes_on()
            await asyncio.sleep(chosen.uniform(0, SETTLED_S))
            fault = round_.pop()
            name = fault.__name__  # type: ignore[attr-defined]
            await fault()
            road.counts[name] += 1
            tell(f"{cycle + 1}: {name}, {len(road.confirmed):,} confirmed")
        publisher.cancel()
        await asyncio.gather(publisher, return_exceptions=True)
        return Found(road, await road.drained())
    finally:
        await road.stop()
