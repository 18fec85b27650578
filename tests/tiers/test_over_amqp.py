"""Streams that are larger than the disk, and kills of the broker and of the tiers process, as
clients see them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp import raw, streams
from tests.amqp.raw import Client
from tests.disks import SmallDisk
from tests.tiers.processes import Processes

STREAM_BYTES = int(os.environ.get("LEVERET_TEST_STREAM_BYTES", str(96 << 20)))
DISK_BYTES = int(os.environ.get("LEVERET_TEST_DISK_BYTES", str(40 << 20)))
"""`make large-stream` has a stream of 1 GB on a disk of 100 MB."""

BODY = 64 << 10
AT_ONCE = 32
PERSISTENT = 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "disk", DISK_BYTES)
    yield made
    made.unmount()


def body(number: int, size: int) -> bytes:
    """Of a message: no two are the same."""
    return hashlib.blake2b(number.to_bytes(8)).digest() * (size // 64)


def publish(client: Client, channel: int, stream: str, bodies: list[bytes], first: int) -> None:
    """Publishes and waits for the confirms; the disk's alarm may hold that up for a while."""
    for each in bodies:
        client.send(raw.publish(channel, "", stream, each, delivery_mode=PERSISTENT))
    last, told = first + len(bodies) - 1, first - 1
    while told < last:
        got = client.read_method()
        if got.name in ("connection.blocked", "connection.unblocked"):
            continue
        assert got.name == "basic.ack", got
        told = max(told, got.delivery_tag) if got.multiple else told + 1


def bytes_here(processes: Processes) -> int:
    """Of the segments on this disk; one may leave meanwhile."""
    size = 0
    for path in processes.here():
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def confirming(client: Client, channel: int = 9) -> int:
    client.call(channel, "channel.open")
    client.call(channel, "confirm.select")
    return channel


def test_a_stream_is_larger_than_the_disk(tmp_path: Path, disk: SmallDisk) -> None:
    processes = Processes(
        tmp_path,
        data_dir=disk.path / "data",
        disk_free_limit=10 << 20,
        disk_reserve=1 << 20,
        tier_cache_max=16 << 20,
        tier_read_ahead=4 << 20,
    ).start()
    count = STREAM_BYTES // BODY
    try:
        with processes.client() as client:
            client.timeout = 120.0
            client.socket.settimeout(120.0)
            stream = processes.tiered(
                client, x_stream_max_segment_size_bytes=1 << 20, x_stream_local_max_bytes=4 << 20
            )
            channel = confirming(client)
            for first in range(0, count, AT_ONCE):
                numbers = range(first, min(count, first + AT_ONCE))
                publish(client, channel, stream, [body(n, BODY) for n in numbers], first + 1)
            assert bytes_here(processes) < DISK_BYTES < STREAM_BYTES
            reader = streams.Reader(client, stream, x_stream_offset="first")
            for number in range(count):
                message = client.expect_message(channel=reader.channel)
                assert message.body == body(number, BODY), number
                if number % AT_ONCE == AT_ONCE - 1:
                    reader.ack(message, multiple=True)
            assert len(processes.objects()) * (1 << 20) > STREAM_BYTES - DISK_BYTES
    finally:
        processes.close()


def test_a_disk_without_a_free_byte_is_freed_by_uploads(tmp_path: Path, disk: SmallDisk) -> None:
    """Others have filled it, and take what the broker's reserve gives back, too."""
    processes = Processes(
        tmp_path, data_dir=disk.path / "data", disk_free_limit=4 << 20, disk_reserve=1 << 20
    ).start()
    try:
        with processes.client() as client:
            client.timeout = 120.0
            client.socket.settimeout(120.0)
            stream = processes.tiered(
                client, x_stream_max_segment_size_bytes=1 << 20, x_stream_local_max_bytes=2 << 20
            )
            channel = confirming(client)
            count = (8 << 20) // BODY
            publish(client, channel, stream, [body(0, BODY)], 1)
            directory = next(iter(processes.here())).parent
            streams.until(lambda: is_prepared(directory / "tier.journal"))
            streams.until(lambda: is_prepared(processes.broker.data_dir / "tiers.journal"))
            processes.tiers.kill()
            publish(client, channel, stream, [body(n, BODY) for n in range(1, count)], 2)
            # One that comes during the alarm would wait; this one is begun before.
            last = raw.publish(channel, "", stream, body(count, BODY), delivery_mode=PERSISTENT)
            begun = len(raw.method(channel, "basic.publish", exchange="", routing_key=stream))
            client.send(last[:begun])
            client.fence(1)
            disk.fill()
            client.send(last[begun:])
            # The broker finds the disk full and gives its reserve.
            streams.until(lambda: (disk.fill(), "disk is full" in processes.broker.log())[1])
            disk.fill()
            assert disk.free == 0
            processes.tiers.start(wait=False)
            while client.read_method().name != "basic.ack":
                pass
            streams.until(lambda: bytes_here(processes) <= 3 << 20)
            disk.clear()
            reader = streams.Reader(client, stream, x_stream_offset="first")
            for number in range(count + 1):
                message = client.expect_message(channel=reader.channel)
                assert message.body == body(number, BODY), number
                reader.ack(message)
    finally:
        processes.close()


def is_prepared(path: Path) -> bool:
    """Whether a file has more space than it holds."""
    return path.exists() and path.stat().st_blocks * 512 > path.stat().st_size + 2048


SMALL = 1024
BATCH = 12
ENDS = ("tiers", "broker", "both", "tiers", "both", "broker")


def test_kills_of_both_processes_lose_no_confirmed_message(tmp_path: Path) -> None:
    """One of them is killed after each batch, while segments are on their way."""
    processes = Processes(tmp_path).start()
    published = 0
    try:
        with processes.client() as client:
            stream = processes.tiered(client)
        for end in ENDS:
            with processes.client() as client:
                bodies = [body(published + each, SMALL) for each in range(BATCH)]
                publish(client, confirming(client), stream, bodies, 1)
                published += BATCH
                streams.until(lambda: bool(processes.objects()))
            if end in ("tiers", "both"):
                processes.tiers.kill()
            if end in ("broker", "both"):
                processes.broker.kill()
                processes.broker.start()
            if end in ("tiers", "both"):
                processes.tiers.start(wait=False)
            with processes.client() as client:
                got = streams.read(client, stream, published, x_stream_offset="first")
                assert got == [(each, body(each, SMALL)) for each in range(published)]
        streams.until(lambda: len(processes.here()) == 1)
    finally:
        processes.close()
