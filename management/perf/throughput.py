"""Mode throughput: publishers and consumers on connections of their own."""

from __future__ import annotations

import asyncio
import os
import time
from argparse import Namespace
from typing import Any

from broker.client.aio import Channel, Connection, connect
from broker.client.batch import Batch
from broker.client.errors import ChannelClosed, ClientError
from broker.client.measuring import Histogram
from broker.client.message import Message
from broker.client.properties import encode
from broker.client.stamping import Stamper, StampReader
from broker.client.uri import Endpoint
from management.perf.report import latencies

# So much goes out between two looks at what came in.
BURST_BYTES = 256 * 1024
BURST_MAX = 4096
IDLE_POLL_S = 0.001
# Consumers with a rate read little at a time: what was read counts as consumed.
RATED_READ_BYTES = 2048
DRAIN_S = 10.0


class Throughput:
    """One run. `stop` ends it; `run` returns its summary."""

    def __init__(self, endpoint: Endpoint, options: Namespace) -> None:
        self.endpoint = endpoint
        self.options = options
        self.stop = asyncio.Event()
        self.number = int.from_bytes(os.urandom(4), "big")
        self.latency = Histogram()
        self.confirm_latency = Histogram()
        self.stampers: list[Stamper] = []
        self.readers: list[StampReader] = []
        self.publishing: list[Channel] = []
        self.returned = 0
        self.got = 0
        self._connections: list[Connection] = []
        self._began = 0.0
        self._ended = 0.0
        self._counts = (0, 0)

    @property
    def published(self) -> int:
        return sum(one.count for one in self.stampers)

    @property
    def consumed(self) -> int:
        return self.got + sum(one.count for one in self.readers)

    def queue_of(self, index: int) -> str:
        """The queue of a publisher or consumer."""
        options = self.options
        if options.queue_pattern is None:
            return str(options.queue)
        count = options.queues or max(options.publishers, options.consumers)
        return str(options.queue_pattern.replace("%", str(index % count + 1)))

    async def run(self) -> dict[str, Any]:
        """Raises ClientError where the broker refuses."""
        options = self.options
        admin = await connect(self.endpoint)
        names = {self.queue_of(one) for one in range(max(options.publishers, options.consumers, 1))}
        tasks: list[asyncio.Task[None]] = []
        try:
            async with admin.channel() as channel:
                await self._declare(channel, sorted(names))
            publishers = [await self._publisher(one) for one in range(options.publishers)]
            self._began = time.monotonic()
            consumers = [self._consume(one) for one in range(options.consumers)]
            for work in (*consumers, *(self._publish(*one) for one in publishers)):
                tasks.append(asyncio.create_task(work))
            await self._until_over(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for connection in self._connections:
                await connection.close()
            await self._clean_up(admin, names)
            await admin.close()
        return self.summary()

    async def _until_over(self, tasks: list[asyncio.Task[None]]) -> None:
        """Waits for the stop, the time, the counts, or the first error."""
        publishing = tasks[self.options.consumers :]
        over = asyncio.create_task(self.stop.wait())
        try:
            while not over.done():
                left = [one for one in tasks if not one.done()]
                for task in tasks:
                    if task.done():
                        task.result()
                if publishing and all(one.done() for one in publishing):
                    await self._drained()
                    break
                if not left:
                    break
                timeout = self.options.time - (time.monotonic() - self._began)
                if self.options.time and timeout <= 0:
                    break
                await asyncio.wait(
                    [over, *left],
                    timeout=timeout if self.options.time else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            # What still arrives while connections are closed is no part of the measurement.
            self._ended = time.monotonic()
            self._counts = (self.published, self.consumed)
            over.cancel()

    async def _drained(self) -> None:
        """Publishing has ended by its count: waits until everything was consumed."""
        if not self.options.consumers:
            return
        deadline = time.monotonic() + DRAIN_S
        while self.consumed < self.published and time.monotonic() < deadline:
            if self.stop.is_set():
                return
            await asyncio.sleep(IDLE_POLL_S)

    async def _declare(self, channel: Channel, names: list[str]) -> None:
        for name in names:
            await channel.call(
                "queue.declare",
                queue=name,
                durable=self.options.persistent,
                arguments=self.options.queue_args,
            )
            if self.options.exchange:
                await channel.call(
                    "queue.bind",
                    queue=name,
                    exchange=self.options.exchange,
                    routing_key=self._routing_key(name),
                )

    def _routing_key(self, queue: str) -> str:
        given = self.options.routing_key
        return queue if given is None else str(given)

    async def _clean_up(self, admin: Connection, names: set[str]) -> None:
        if self.options.keep or admin.core.closed is not None:
            return
        for name in names:
            try:
                async with admin.channel() as channel:
                    await channel.call("queue.delete", queue=name)
            except ChannelClosed:
                continue  # it went by itself

    # Publishing.

    async def _publisher(self, index: int) -> tuple[Connection, Channel, Stamper]:
        options = self.options
        connection = await connect(self.endpoint)
        self._connections.append(connection)
        channel = await connection.open_channel()
        if options.confirm:
            await channel.select_confirms(self.confirm_latency)
        if options.publish_transactions:
            await channel.call("tx.select")
        channel.on_return = self._on_return
        properties = dict(options.properties)
        if options.persistent:
            properties.setdefault("delivery_mode", 2)
        stamper = Stamper(
            channel.core,
            options.exchange.encode(),
            self._routing_key(self.queue_of(index)).encode(),
            encode(properties),
            options.size,
            run=self.number,
            mandatory=options.mandatory,
            body=os.urandom(options.size) if options.random_bodies else None,
        )
        self.stampers.append(stamper)
        self.publishing.append(channel)
        return connection, channel, stamper

    def _on_return(self, message: Message, text: str) -> None:
        self.returned += 1

    async def _publish(self, connection: Connection, channel: Channel, stamper: Stamper) -> None:
        options = self.options
        burst = max(1, min(BURST_MAX, BURST_BYTES // (options.size + 64)))
        share = -(-options.pmessages // options.publishers)
        unconfirmed = channel.core.unconfirmed
        uncommitted = 0
        while not self.stop.is_set() and (not share or stamper.count < share):
            count = min(burst, share - stamper.count) if share else burst
            if unconfirmed is not None:
                count = min(count, options.confirm - unconfirmed.count)
                if count <= 0:
                    # Half a window at a time: a turn of the loop for each confirm is dear.
                    await channel.confirms_below(max(1, options.confirm // 2))
                    continue
            if options.publish_transactions:
                count = min(count, options.publish_transactions - uncommitted)
            if options.rate:
                due = int(options.rate * (time.monotonic() - self._began)) + 1 - stamper.count
                if due <= 0:
                    await asyncio.sleep(min(1 / options.rate, 0.01))
                    continue
                count = min(count, due)
            stamper.publish(count)
            connection.flush()
            if options.publish_transactions:
                uncommitted += count
                if uncommitted >= options.publish_transactions:
                    await channel.call("tx.commit")
                    uncommitted = 0
            if connection.is_writable:
                await asyncio.sleep(0)
            else:
                await connection.writable()
        if uncommitted:
            await channel.call("tx.commit")
        if unconfirmed is not None:
            await channel.confirms_below(1)

    # Consuming.

    async def _consume(self, index: int) -> None:
        options = self.options
        connection = await connect(self.endpoint)
        self._connections.append(connection)
        channel = await connection.open_channel()
        reader = StampReader(
            self.latency, run=self.number, ack_every=options.ack, verify=options.verify
        )
        self.readers.append(reader)
        queue = self.queue_of(index)
        if options.poll:
            await self._poll(connection, channel, queue)
            return
        if options.ack_transactions:
            await channel.call("tx.select")
        if options.consumer_rate:
            connection.limit_reads(RATED_READ_BYTES)
        uncommitted = 0

        def on_batch(channel: Channel, batch: Batch) -> None:
            nonlocal uncommitted
            before = reader.count
            reader.read(channel.core, batch)
            if options.ack_transactions:
                uncommitted += reader.count - before
                if uncommitted >= options.ack_transactions:
                    uncommitted = 0
                    committed = asyncio.get_running_loop().create_future()
                    # A commit that fails closes the channel, which ends the consumer.
                    committed.add_done_callback(lambda done: done.exception())
                    channel.core.request("tx.commit", committed)
            if options.cmessages and self.consumed >= options.cmessages:
                self.stop.set()
            if options.consumer_rate:
                ahead = reader.count / options.consumer_rate - (time.monotonic() - self._began)
                if ahead > 0:
                    connection.pause_reading(ahead)

        consumer = await channel.consume(
            queue,
            on_batch,
            prefetch=options.prefetch or None,
            no_ack=not options.ack,
            arguments=options.consumer_args,
        )
        try:
            await consumer.cancelled.wait()
        finally:
            if channel.core.closed is None:
                reader.flush(channel.core)
                connection.flush()
        channel.core.check()
        raise ClientError(f"the server cancelled the consumer of queue '{queue}'")

    async def _poll(self, connection: Connection, channel: Channel, queue: str) -> None:
        unacked = 0
        while not self.stop.is_set():
            message = await channel.get(queue, no_ack=not self.options.ack)
            if message is None:
                await asyncio.sleep(IDLE_POLL_S)
                continue
            self.got += 1
            unacked += 1
            if self.options.ack and unacked >= self.options.ack:
                channel.core.ack(message.delivery_tag, multiple=True)
                connection.flush()
                unacked = 0
            if self.options.cmessages and self.consumed >= self.options.cmessages:
                self.stop.set()

    # Figures.

    def summary(self) -> dict[str, Any]:
        """The facts of the run; rates are a second, latencies microseconds."""
        seconds = max(self._ended - self._began, 1e-9)
        published, consumed = self._counts
        confirmed = [one.core.unconfirmed for one in self.publishing if one.core.unconfirmed]
        facts: dict[str, Any] = {
            "elapsed_seconds": round(seconds, 3),
            "published": published,
            "consumed": consumed,
            "avg_pub_rate": round(published / seconds, 1),
            "avg_consume_rate": round(consumed / seconds, 1),
            "confirmed": sum(one.acked for one in confirmed) if confirmed else None,
            "nacked": sum(one.nacked for one in confirmed) if confirmed else None,
            "returned": self.returned if self.options.mandatory else None,
            "redelivered": sum(one.redelivered for one in self.readers) or None,
            "wrong_bodies": sum(one.wrong for one in self.readers) if self.options.verify else None,
        }
        if self.options.latency:
            facts["latency_us"] = latencies(self.latency)
            facts["confirm_latency_us"] = latencies(self.confirm_latency)
        return facts

    def line(self, before: tuple[int, int], seconds: float) -> str:
        """A line for the last seconds."""
        published = (self.published - before[0]) / seconds
        consumed = (self.consumed - before[1]) / seconds
        return f"Publish rate: {published:,.0f} msgs/s  Consume rate: {consumed:,.0f} msgs/s"

    def progress(self) -> tuple[int, int]:
        return self.published, self.consumed
