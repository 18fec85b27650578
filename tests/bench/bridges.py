"""`make bench ARGS=--bridges`: shovels beside RabbitMQ's own, in turn, in the same run.

A queue is filled with numbered messages, then a shovel with ack mode on-confirm and a prefetch of
10,000 empties it into a queue that nothing consumes. The rate is that at which they leave a source
of ours, which they do when the destination has confirmed them, or arrive at RabbitMQ's destination,
between a tenth and nine tenths of them. Afterwards all are taken from the destination, and each
number has to be there once. From a broker to itself, and from Leveret to RabbitMQ, beside what the
generator publishes to RabbitMQ with as many confirms under way. CPU is that of all processes at
both ends, for each message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.client.aio import Channel, connect
from broker.client.batch import Batch
from broker.client.properties import encode
from broker.client.uri import Endpoint
from management.broker_client import BrokerClient
from tests.bench import generator, limits, processes
from tests.bench.leveret import REPOSITORY, Leveret
from tests.bench.rabbitmq import NotAvailable, RabbitMQ

SIZES = {"16 B": 16, "1 KiB": 1024}
PREFETCH = 10_000
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02
NUMBER = struct.Struct("<Q")
# Messages of a row for each second that it is to take: about what each is known to reach.
GUESSED = {"Leveret": {16: 1_000_000, 1024: 100_000}, "RabbitMQ": {16: 25_000, 1024: 15_000}}
SHOVEL = "bench"

Broker = Leveret | RabbitMQ


class Bridges:
    """The process `bridges` beside a broker of ours."""

    def __init__(self, broker: Leveret) -> None:
        read_end, self._lifetime = os.pipe()
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(REPOSITORY / "manage.py"), "bridges"),
                *("--data-dir", str(broker.directory / "data")),
            ],
            stdout=(broker.directory / "bridges").open("ab"),
            stderr=subprocess.STDOUT,
            cwd=REPOSITORY,
            start_new_session=True,
            pass_fds=[read_end],
            env={**os.environ, "LEVERET_CONFIG": "", "LEVERET_LIFETIME_FD": str(read_end)},
        )
        os.close(read_end)

    def stop(self) -> None:
        processes.end(self.process)
        os.close(self._lifetime)


async def fill(port: int, queue: str, count: int, size: int) -> None:
    """Publishes persistent messages, confirmed."""
    async with await connect(Endpoint(port=port)) as connection, connection.channel() as channel:
        await channel.call("queue.declare", queue=queue, durable=True)
        await channel.select_confirms()
        listed, rest = encode({"delivery_mode": 2}), bytes(size - NUMBER.size)
        for number in range(count):
            channel.core.publish(b"", queue.encode(), listed, NUMBER.pack(number) + rest)
            if number % 500 == 0:
                connection.flush()
                await channel.confirms_below(20_000)
        connection.flush()
        await channel.confirms_below(1)


async def check(port: int, queue: str, count: int) -> None:
    """Takes all messages out of a queue. Raises RuntimeError unless each number is there once."""
    seen = bytearray(count)
    came = 0
    over = asyncio.Event()

    def take(channel: Channel, batch: Batch) -> None:
        nonlocal came
        for message in batch.messages():
            seen[NUMBER.unpack_from(message.body)[0]] += 1
        came += batch.count
        channel.core.ack(batch.last_tag, True)
        if came >= count:
            over.set()

    async with await connect(Endpoint(port=port)) as connection, connection.channel() as channel:
        await channel.consume(queue, take, prefetch=PREFETCH)
        async with asyncio.timeout(PATIENCE_S):
            await over.wait()
    wrong = count - seen.count(1)
    if came != count or wrong:
        raise RuntimeError(f"{came} of {count} messages arrived, {wrong} numbers not once")


async def ready(channel: Channel, queue: str) -> int:
    reply = await channel.call("queue.declare", queue=queue, durable=True)
    return int(reply["message_count"])


async def put(broker: Broker, port: int, source: str, target: str) -> None:
    """Defines the shovel: from a queue of the broker to one of the broker at the port."""
    far = f"amqp://guest:guest@127.0.0.1:{port}"
    value = {
        "src-uri": "amqp://",
        "src-queue": source,
        "src-prefetch-count": PREFETCH,
        "dest-uri": "amqp://" if port == broker.port else far,
        "dest-queue": target,
        "ack-mode": "on-confirm",
    }
    if isinstance(broker, RabbitMQ):
        done = broker.control("set_parameter", "shovel", SHOVEL, json.dumps(value))
        if done.returncode:
            raise NotAvailable(done.stdout + done.stderr)
        return
    await asked(broker, "parameter.put", value=value)


async def asked(broker: Leveret, verb: str, **arguments: Any) -> None:
    client = BrokerClient(broker.directory / "data/control.sock")
    try:
        named = {"component": "shovel", "vhost": "/", "name": SHOVEL}
        await client.call(verb, **named, **arguments)
    finally:
        await client.close()


async def end(broker: Broker) -> None:
    if isinstance(broker, RabbitMQ):
        broker.control("clear_parameter", "shovel", SHOVEL)
    else:
        await asked(broker, "parameter.delete")


class Looks:
    """How many messages have passed. Of a source of ours: those that it has no more, as they are
    acknowledged when the destination has confirmed them; else what the destination has."""

    def __init__(self, source: Broker, channel: Channel, count: int) -> None:
        self._client = None
        if isinstance(source, Leveret):
            self._client = BrokerClient(source.directory / "data/control.sock")
        self._channel = channel
        self._count = count

    async def passed(self) -> int:
        if self._client is None:
            return await ready(self._channel, "bench-to")
        row = await self._client.call("item", noun="queues", vhost="/", name="bench-from")
        return self._count - int(row["messages"])

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


async def watched(
    source: Broker, port: int, count: int, pids: list[int], bridges: list[int]
) -> dict[str, float]:
    """The rate at which messages pass, CPU a message, and memory of `bridges`."""
    first = last = (0.0, 0, 0.0)
    most = early = 0
    deadline = time.monotonic() + PATIENCE_S
    async with await connect(Endpoint(port=port)) as connection, connection.channel() as channel:
        looks = Looks(source, channel, count)
        while True:
            passed = await looks.passed()
            now = time.monotonic(), passed, processes.cpu_seconds(pids)
            if bridges:
                most = max(most, processes.resident_bytes(bridges))
                early = early or most * (passed >= count // 10)
            if passed < count // 10:
                first = now
            if passed <= count * 9 // 10:
                last = now
            if passed >= count:
                break
            if now[0] > deadline:
                raise RuntimeError(f"{passed} of {count} messages came in {PATIENCE_S:.0f} s")
            await asyncio.sleep(LOOK_EVERY_S)
        await looks.close()
        await check(port, "bench-to", count)
        await channel.call("queue.delete", queue="bench-to")
    moved = last[1] - first[1]
    if moved <= 0:
        raise RuntimeError("it went too fast to be measured: more --seconds")
    return {
        "rate": moved / (last[0] - first[0]),
        "cpu_us": (last[2] - first[2]) / moved * 1e6,
        "early": early,
        "memory": most,
    }


async def measured(
    source: Broker, target: Broker, bridges: Bridges | None, size: int, seconds: float
) -> dict[str, float]:
    """One row: fill, shovel, look."""
    known = GUESSED[target.name][size]
    count = int(known * seconds)
    await fill(source.port, "bench-from", count, size)
    child = [bridges.process.pid] if bridges is not None else []
    pids = [*source.pids(), *(target.pids() if target is not source else []), *child]
    await put(source, target.port, "bench-from", "bench-to")
    try:
        return await watched(source, target.port, count, pids, child)
    finally:
        await end(source)


def published(broker: RabbitMQ, size: int, seconds: float) -> float:
    """Messages a second that the generator publishes, persistent and confirmed."""
    options = ["--persistent", "--confirm", str(PREFETCH), "--body", str(size), "--consumers", "0"]
    found = generator.run(broker.port, [*options, "--warmup", "1", "--duration", str(seconds)])
    return float(found["rate"])


@contextlib.contextmanager
def brokers(base: Path, *, with_rabbitmq: bool) -> Iterator[tuple[Leveret, Bridges, Any]]:
    leveret = Leveret(base / "leveret")
    leveret.start()
    bridges = Bridges(leveret)
    rabbitmq: RabbitMQ | None = None
    try:
        if with_rabbitmq:
            try:
                rabbitmq = RabbitMQ(base / "rabbitmq", ("rabbitmq_shovel",))
                rabbitmq.start()
            except NotAvailable as error:
                print(f"RabbitMQ: not run: {error}")
                rabbitmq = None
        yield leveret, bridges, rabbitmq
    finally:
        bridges.stop()
        leveret.stop()
        if rabbitmq is not None:
            rabbitmq.stop()


def main(options: argparse.Namespace, base: Path) -> int:
    """Prints the table, medians of all rounds."""
    rounds = options.rounds or 3
    seconds = options.seconds or 4.0
    found: dict[str, list[dict[str, float]]] = {}
    with brokers(base, with_rabbitmq=not options.no_rabbitmq) as (leveret, bridges, rabbitmq):
        for _ in range(rounds):
            for label, size in SIZES.items():
                ways: list[tuple[str, Broker, Broker, Bridges | None]] = [
                    ("Leveret → itself", leveret, leveret, bridges)
                ]
                if rabbitmq is not None:
                    ways += [
                        ("RabbitMQ → itself", rabbitmq, rabbitmq, None),
                        ("Leveret → RabbitMQ", leveret, rabbitmq, bridges),
                    ]
                for way, source, target, process in ways:
                    result = asyncio.run(measured(source, target, process, size, seconds))
                    found.setdefault(f"{way}, {label}", []).append(result)
                if rabbitmq is not None:
                    rate = {"rate": published(rabbitmq, size, seconds)}
                    found.setdefault(f"generator → RabbitMQ, {label}", []).append(rate)
        sync = limits.measure_sync(base, 1.0).p50_ms
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; {leveret.version};")
    print(f"{rounds} rounds of {seconds:g} s, on-confirm, prefetch {PREFETCH:,}")
    print(f"an append with fdatasync took {sync:.2f} ms")
    print(table(found))
    return 0


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| Shovel | messages/s | µs CPU a message | MiB of bridges, early and at most |"
        " rates of the rounds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, results in found.items():
        rate = statistics.median(result["rate"] for result in results)
        cpu = [result["cpu_us"] for result in results if "cpu_us" in result]
        early, most = (
            max(result.get(name, 0) for result in results) / (1 << 20)
            for name in ("early", "memory")
        )
        cells = [
            f"{rate:,.0f}",
            f"{statistics.median(cpu):.1f}" if cpu else "",
            f"{early:.0f}, {most:.0f}" if most else "",
            ", ".join(f"{result['rate']:,.0f}" for result in results),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
