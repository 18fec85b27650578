"""A broker with the process that runs shovels, and a second one to carry messages to."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.aio import Channel, Connection, connect
from broker.client.message import Message
from broker.client.properties import encode
from broker.client.uri import Endpoint
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.bench.rabbitmq import NotAvailable, RabbitMQ

PATIENCE_S = 60.0


class Pair:
    """`broker` with its process `bridges`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.broker = Appliance("broker", directory, **settings)
        self.bridges = Appliance("bridges", directory, **self.broker.settings)

    def start(self) -> Pair:
        self.broker.start()
        self.bridges.start(wait=False)
        return self

    def close(self) -> None:
        if self.bridges.process is not None:
            self.bridges.kill()
        self.broker.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("here")).start()
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """The broker at the other end."""
    broker = Appliance("broker", tmp_path_factory.mktemp("far"))
    yield broker.start()
    broker.close()


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    try:
        broker = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
        broker.start()
    except NotAvailable as error:
        pytest.skip(f"no RabbitMQ: {error}")
    yield broker
    broker.stop()


def name() -> str:
    """A name of the test's own."""
    return f"s-{uuid.uuid4().hex[:10]}"


class Bench:
    """What a test does with shovels and queues of one pair. Names are the test's own."""

    def __init__(self, pair: Pair, control: BrokerClient, here: Connection) -> None:
        self.pair = pair
        self.control = control
        self.here = here
        self.shovel = self.queue = name()
        self.target = f"{self.queue}-to"

    async def put(self, user: str | None = "guest", **definition: Any) -> None:
        """Defines the shovel: from this test's queue here to its target, unless told otherwise."""
        given = {key.replace("_", "-"): value for key, value in definition.items()}
        value = {"src-uri": "amqp://", "dest-uri": "amqp://", "reconnect-delay": 1, **given}
        if "src-exchange" not in value:
            value.setdefault("src-queue", self.queue)
        await self.control.call(
            "parameter.put",
            as_user=user,
            component="shovel",
            vhost="/",
            name=self.shovel,
            value={key: item for key, item in value.items() if item is not None},
        )

    async def row(self) -> dict[str, Any] | None:
        rows = await self.control.call("shovel.list", vhost="/", name=self.shovel)
        return rows[0] if rows else None

    async def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits until the row of the shovel is so."""
        row: dict[str, Any] | None = None

        async def is_so() -> bool:
            nonlocal row
            row = await self.row()
            return row is not None and true(row)

        await until(is_so, lambda: f"{row}\n{self.pair.bridges.log()[-3000:]}")
        assert row is not None
        return row

    async def until_state(self, *states: str) -> dict[str, Any]:
        return await self.until(lambda row: row["state"] in states)

    async def until_gone(self) -> None:
        async def is_gone() -> bool:
            return await self.row() is None

        await until(is_gone, lambda: self.pair.bridges.log()[-3000:])

    async def publish(
        self, count: int, queue: str | None = None, *, size: int = 16, **properties: Any
    ) -> list[bytes]:
        """Publishes numbered messages, confirmed; their bodies."""
        async with self.here.channel() as channel:
            return await publish(channel, queue or self.queue, count, size=size, **properties)

    async def declare(self, queue: str, **arguments: Any) -> None:
        async with self.here.channel() as channel:
            await declare(channel, queue, **arguments)


async def until(
    is_so: Callable[[], Awaitable[bool]],
    shown: Callable[[], str] = lambda: "it does not come",
    patience_s: float = PATIENCE_S,
) -> None:
    """Asks again, many times a second, until it is so."""
    deadline = time.monotonic() + patience_s
    while not await is_so():
        assert time.monotonic() < deadline, shown()
        await asyncio.sleep(0.05)


async def declare(channel: Channel, queue: str, **arguments: Any) -> None:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    await channel.call("queue.declare", queue=queue, durable=True, arguments=named)


async def publish(
    channel: Channel, queue: str, count: int, *, size: int = 16, **properties: Any
) -> list[bytes]:
    await channel.select_confirms()
    listed = encode({"delivery_mode": 2, **properties})
    bodies = [b"%0*d" % (size, number) for number in range(count)]
    for body in bodies:
        channel.core.publish(b"", queue.encode(), listed, body)
    channel.connection.flush()
    await channel.confirms_below(1)
    return bodies


async def taken(
    connection: Connection, queue: str, count: int, *, is_there: bool = False
) -> list[Message]:
    """Takes so many messages out of a queue, which a shovel may still have to declare."""
    found: list[Message] = []
    async with connection.channel() as channel:
        if not is_there:
            await declare(channel, queue)

        def keep(channel: Channel, batch: Any) -> None:
            found.extend(batch.messages())
            channel.core.ack(batch.last_tag, multiple=True)

        consumer = await channel.consume(queue, keep)

        async def came() -> bool:
            return len(found) >= count

        await until(came, lambda: f"{len(found)} of {count} came")
        await channel.cancel(consumer)
    return found


async def ready(connection: Connection, queue: str) -> int:
    """How many messages are ready in a queue."""
    async with connection.channel() as channel:
        reply = await channel.call("queue.declare", queue=queue, passive=True)
        return int(reply["message_count"])


def endpoint_of(broker: Appliance) -> Endpoint:
    return Endpoint(host=broker.host, port=broker.amqp_port)


@contextlib.asynccontextmanager
async def bench_of(pair: Pair) -> AsyncIterator[Bench]:
    control = BrokerClient(pair.broker.control_socket)
    try:
        async with await connect(endpoint_of(pair.broker)) as here:
            bench = Bench(pair, control, here)
            await bench.declare(bench.queue)
            yield bench
            if await bench.row() is not None:
                await control.call(
                    "parameter.delete", component="shovel", vhost="/", name=bench.shovel
                )
    finally:
        await control.close()


@pytest.fixture
async def bench(pair: Pair) -> AsyncIterator[Bench]:
    async with bench_of(pair) as bench:
        yield bench


@pytest.fixture
async def there(far: Appliance) -> AsyncIterator[Connection]:
    async with await connect(endpoint_of(far)) as connection:
        yield connection
