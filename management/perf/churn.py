"""Modes that make and remove objects again and again, and modes that keep many."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from broker.client.aio import Channel, Connection, connect
from broker.client.batch import Batch
from broker.client.measuring import Histogram, monotonic_ns
from broker.client.uri import Endpoint
from management.perf.report import latencies

Operation = Callable[[], Awaitable[None]]
CONNECTING_MAX = 32


class Churn:
    """One operation, repeated by `-x` workers until the time, the count or the stop."""

    def __init__(self, mode: str, endpoint: Endpoint, options: Namespace) -> None:
        self.mode = mode
        self.endpoint = endpoint
        self.options = options
        self.stop = asyncio.Event()
        self.done = 0
        self.times = Histogram()
        self._began = self._ended = 0.0
        self._name = f"perf-churn-{os.urandom(4).hex()}"
        self._numbers = itertools.count()

    async def run(self) -> dict[str, Any]:
        """Raises ClientError where the broker refuses."""
        self._began = time.monotonic()
        timer = asyncio.get_running_loop().call_later(self.options.time or 1e9, self.stop.set)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, self.options.publishers)):
                    group.create_task(self._work())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            timer.cancel()
            self._ended = time.monotonic()
        return self.summary()

    async def _work(self) -> None:
        async with _OPERATIONS[self.mode](self) as operation:
            while not self.stop.is_set():
                if self.options.operations and self.done >= self.options.operations:
                    return
                self.done += 1
                began = monotonic_ns()
                await operation()
                self.times.record(monotonic_ns() - began)

    def summary(self) -> dict[str, Any]:
        seconds = max(self._ended - self._began, 1e-9)
        return {
            "mode": self.mode,
            "elapsed_seconds": round(seconds, 3),
            "operations": self.times.count,
            "rate": round(self.times.count / seconds, 1),
            "latency_us": latencies(self.times),
        }

    def line(self, before: tuple[int], seconds: float) -> str:
        """A line for the last seconds."""
        return f"{self.mode}: {(self.times.count - before[0]) / seconds:,.0f} operations/s"

    def progress(self) -> tuple[int]:
        return (self.times.count,)

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A channel on a connection of its own."""
        async with await connect(self.endpoint) as connection, connection.channel() as channel:
            yield channel

    @asynccontextmanager
    async def queue(self, durable: bool = False) -> AsyncIterator[tuple[Channel, str]]:
        """A channel, and a queue that is deleted at the end."""
        name = f"{self._name}-{next(self._numbers)}"
        async with self.channel() as channel:
            await channel.call("queue.declare", queue=name, durable=durable)
            yield channel, name
            await channel.call("queue.delete", queue=name)

    @asynccontextmanager
    async def bind(self) -> AsyncIterator[Operation]:
        async with self.queue(self.options.durable) as (channel, name):
            numbers = itertools.count()

            async def operation() -> None:
                words = {
                    "queue": name,
                    "exchange": "amq.direct",
                    "routing_key": f"{name}-{next(numbers)}",
                }
                await channel.call("queue.bind", **words)
                await channel.call("queue.unbind", **words)

            yield operation

    @asynccontextmanager
    async def queues(self) -> AsyncIterator[Operation]:
        async with self.channel() as channel:

            async def operation() -> None:
                name = f"{self._name}-{next(self._numbers)}"
                await channel.call("queue.declare", queue=name, durable=self.options.durable)
                await channel.call("queue.delete", queue=name)

            yield operation

    @asynccontextmanager
    async def connections(self) -> AsyncIterator[Operation]:
        async def operation() -> None:
            async with await connect(self.endpoint) as connection:
                await connection.open_channel()

        yield operation

    @asynccontextmanager
    async def channels(self) -> AsyncIterator[Operation]:
        async with await connect(self.endpoint) as connection:

            async def operation() -> None:
                channel = await connection.open_channel()
                await channel.close()

            yield operation

    @asynccontextmanager
    async def consumers(self) -> AsyncIterator[Operation]:
        async with self.queue() as (channel, name):

            async def operation() -> None:
                consumer = await channel.consume(name, _ignore)
                await channel.cancel(consumer)

            yield operation


def _ignore(channel: Channel, batch: Batch) -> None:
    """Nothing is published to a queue of this mode."""


_OPERATIONS: dict[str, Callable[[Churn], Any]] = {
    "bind-churn": Churn.bind,
    "queue-churn": Churn.queues,
    "connection-churn": Churn.connections,
    "channel-churn": Churn.channels,
    "consumer-churn": Churn.consumers,
}


class Count:
    """Makes many connections or queues, keeps them until the time or the stop, and removes them."""

    def __init__(self, mode: str, endpoint: Endpoint, options: Namespace) -> None:
        self.mode = mode
        self.endpoint = endpoint
        self.options = options
        self.stop = asyncio.Event()
        self.made = 0
        self.times = Histogram()
        self._seconds = 0.0
        self._name = f"perf-count-{os.urandom(4).hex()}"
        self._connections: list[Connection] = []

    async def run(self) -> dict[str, Any]:
        """Raises ClientError where the broker refuses."""
        began = time.monotonic()
        try:
            if self.mode == "connection-count":
                await self._connect()
            else:
                await self._declare()
            self._seconds = time.monotonic() - began
            if self.made == self.options.count and (self.options.time or self._must_wait):
                try:
                    async with asyncio.timeout(self.options.time or None):
                        await self.stop.wait()
                except TimeoutError:
                    pass
        finally:
            await self._remove()
        return self.summary()

    @property
    def _must_wait(self) -> bool:
        """Connections are there to be looked at; queues of this mode need no one to hold them."""
        return self.mode == "connection-count" and not self.stop.is_set()

    async def _timed(self, made: Awaitable[Any]) -> None:
        began = monotonic_ns()
        await made
        self.times.record(monotonic_ns() - began)
        self.made += 1

    async def _connect(self) -> None:
        room = asyncio.Semaphore(CONNECTING_MAX)

        async def one() -> None:
            async with room:
                if self.stop.is_set():
                    return
                await self._timed(open_one())

        async def open_one() -> None:
            connection = await connect(self.endpoint)
            self._connections.append(connection)
            await connection.open_channel()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.options.count):
                    group.create_task(one())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _declare(self) -> None:
        connection = await connect(self.endpoint)
        self._connections.append(connection)
        channel = await connection.open_channel()
        for number in range(self.options.count):
            if self.stop.is_set():
                return
            await self._timed(
                channel.call(
                    "queue.declare",
                    queue=f"{self._name}-{number}",
                    durable=self.options.durable,
                )
            )

    async def _remove(self) -> None:
        if self.mode == "queue-count" and not self.options.keep and self._connections:
            connection = self._connections[0]
            if connection.core.closed is None:
                async with connection.channel() as channel:
                    for number in range(self.made):
                        await channel.call("queue.delete", queue=f"{self._name}-{number}")
        for connection in self._connections:
            await connection.close()

    def summary(self) -> dict[str, Any]:
        seconds = max(self._seconds, 1e-9)
        return {
            "mode": self.mode,
            "elapsed_seconds": round(seconds, 3),
            "count": self.made,
            "rate": round(self.made / seconds, 1),
            "latency_us": latencies(self.times),
        }

    def line(self, before: tuple[int], seconds: float) -> str:
        """A line for the last seconds."""
        return f"{self.mode}: {self.made:,} of {self.options.count:,}"

    def progress(self) -> tuple[int]:
        return (self.made,)
