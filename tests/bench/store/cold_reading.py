"""Row T-H6: a consumer reads what lies in the object store only."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator

import httpx

from broker.client.aio import Channel, Connection, connect
from broker.client.batch import Batch
from broker.client.properties import encode
from broker.client.uri import Endpoint
from tests.bench.store.frame import Bench, Figure, Row
from tests.tiers.processes import Processes
from tests.tiers.s3 import BUCKET, FailingS3

LATENCY_S = 0.05
WANTED = 100
BODY = 64 << 10
SEGMENT = 8 << 20
PATIENCE_S = 300.0
ARGUMENTS = {
    "x-queue-type": "stream",
    "x-stream-tier": True,
    "x-stream-local-max-bytes": 0,
    "x-stream-max-segment-size-bytes": SEGMENT,
}


def reading(bench: Bench) -> Iterator[Figure]:
    """T-H6."""
    # Of the server's requests.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = FailingS3()
    server.start()
    server.delay = LATENCY_S
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "anna")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "hush")
    httpx.put(f"{server.address}/{BUCKET}", timeout=60).raise_for_status()
    directory = bench.base / "cold"
    directory.mkdir()
    processes = Processes(
        directory,
        object_store=f"s3://{BUCKET}/bench",
        object_store_endpoint=server.address,
        object_store_region="us-east-1",
    )
    count = bench.sized(400, 1600)
    try:
        processes.start()
        first, requests, again = asyncio.run(_measured(processes, server, count))
    finally:
        processes.close()
        server.stop()
    size = count * BODY >> 20
    yield Figure(
        f"{size} MiB in an S3 server that answers after {LATENCY_S * 1000:.0f} ms, one consumer",
        f"{first:.0f} MB/s",
        f">= {WANTED} MB/s",
        f"each block asked for when it is needed: {(1 << 20) / LATENCY_S / 1e6:.0f} MB/s",
        first >= WANTED,
    )
    yield Figure("requests for it", f"{requests}", "", f"{size} blocks of 1 MiB")
    yield Figure("the same once more, from the cache", f"{again:.0f} MB/s")


async def _measured(
    processes: Processes, server: FailingS3, count: int
) -> tuple[float, int, float]:
    """MB/s of the first reading, its requests, and MB/s of the second."""
    async with _connected(processes) as connection, connection.channel() as channel:
        await channel.call("queue.declare", queue="s", durable=True, arguments=ARGUMENTS)
        await channel.select_confirms()
        properties, body = encode({"delivery_mode": 2}), bytes(BODY)
        for _ in range(count):
            channel.core.publish(b"", b"s", properties, body)
            connection.flush()
            await channel.confirms_below(100)
        await channel.confirms_below(1)
    deadline = time.monotonic() + PATIENCE_S
    while len(processes.here()) > 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(processes.here())} segments are still on this disk")
        await asyncio.sleep(0.2)
    sent = len(server.requests)
    first = await _read(processes, count)
    requests = len(server.requests) - sent
    return first, requests, await _read(processes, count)


@contextlib.asynccontextmanager
async def _connected(processes: Processes) -> AsyncIterator[Connection]:
    async with await connect(Endpoint(port=processes.broker.amqp_port)) as connection:
        yield connection


async def _read(processes: Processes, count: int) -> float:
    """MB/s of a consumer that reads all messages from the first on."""
    left = count
    done = asyncio.Event()

    def take(channel: Channel, batch: Batch) -> None:
        nonlocal left
        left -= len(batch)
        channel.core.ack(batch.last_tag, multiple=True)
        if left <= 0:
            done.set()

    async with _connected(processes) as connection, connection.channel() as channel:
        began = time.monotonic()
        await channel.consume("s", take, prefetch=200, arguments={"x-stream-offset": "first"})
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        return count * BODY / 1e6 / (time.monotonic() - began)


ROWS = (Row("T-H6", "a consumer reads ahead of itself in the object store", reading),)
