"""Row T-Q5: a node with very many queues starts again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import processes
from tests.bench.client import Client, Confirm, Delivery, Method, method, publish, short
from tests.bench.leveret import Leveret
from tests.bench.store.frame import Bench, Figure, Row

BATCH = 1_000
MESSAGES = 4
BODY = b"x" * 100
SECONDS_MAX = 20.0


def _names(count: int) -> Iterator[list[str]]:
    for start in range(0, count, BATCH):
        yield [f"restart.{number:06d}" for number in range(start, min(start + BATCH, count))]


def _confirmed(client: Client, count: int) -> None:
    """Waits until the channel's first `count` messages are confirmed."""
    waiting: set[int] = set(range(1, count + 1))
    while waiting:
        client.receive()
        for event in client.events:
            if isinstance(event, Confirm) and event.ack:
                first = 1 if event.multiple else event.delivery_tag
                waiting.difference_update(range(first, event.delivery_tag + 1))
        client.events.clear()


def fill(port: int, count: int) -> None:
    """Durable queues with some persistent messages each, all confirmed."""
    for names in _names(count):
        # A connection for each batch, so that delivery tags begin again.
        client = Client(port, timeout=120)
        client.select_confirms()
        # nowait: without replies.
        frames = [
            method(1, 50, 10, b"\0\0" + short(name) + b"\x12" + b"\0\0\0\0") for name in names
        ]
        # Queue by queue, again and again: each comes into every one of several rounds.
        frames += [publish("", name, BODY, True) for _ in range(MESSAGES) for name in names]
        client.send(b"".join(frames))
        _confirmed(client, MESSAGES * len(names))
        client.close()


def messages(port: int, count: int) -> int:
    """How many messages are ready in all of the queues."""
    client = Client(port, timeout=120)
    found = 0
    for names in _names(count):
        client.send(
            b"".join(
                method(1, 50, 10, b"\0\0" + short(name) + b"\x01" + b"\0\0\0\0") for name in names
            )
        )
        answers = 0
        while answers < len(names):
            client.receive()
            for event in client.events:
                assert isinstance(event, Method)
                at = 1 + event.arguments[0]
                found += int.from_bytes(event.arguments[at : at + 4], "big")
                answers += 1
            client.events.clear()
    client.close()
    return found


def take_one_of_each(port: int, count: int) -> None:
    """The first message of every queue is settled, and that is written."""
    client = Client(port, timeout=120)
    for names in _names(count):
        client.send(b"".join(method(1, 60, 70, b"\0\0" + short(name) + b"\1") for name in names))
        client.qos(0)
        client.events.clear()
    client.close()


def _read_alone(directory: Path, forget: bool) -> tuple[int, float]:
    """(files, seconds) of looking into every directory and reading every file. `forget` puts their
    pages out of the page cache, before and after."""
    paths = [Path(parent, name) for parent, _, names in os.walk(directory) for name in names]
    if forget:
        _forget(paths)
    began = time.perf_counter()
    for parent, _, names in os.walk(directory):
        for name in names:
            with Path(parent, name).open("rb") as file:
                file.read()
    seconds = time.perf_counter() - began
    if forget:
        _forget(paths)
    return len(paths), seconds


def _forget(paths: list[Path]) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _restart(broker: Leveret, count: int, forget: bool) -> Iterator[Figure]:
    """kill -9, start, and the figures of that start."""
    broker.kill()
    files, read = _read_alone(broker.directory / "data" / "vhosts", forget)
    began = time.perf_counter()
    broker.start()
    client = Client(broker.port)
    connected = time.perf_counter() - began
    client.consume(f"restart.{count // 2:06d}", "first")
    while not any(isinstance(event, Delivery) for event in client.events):
        client.receive()
    delivered = time.perf_counter() - began
    cpu = processes.cpu_seconds(broker.pids())
    client.close()
    how = "files not in the page cache" if forget else "kill -9"
    yield Figure(
        f"{count:,} queues, {how}: first connection, delivery",
        f"{connected:.2f} s, {delivered:.2f} s",
        f"<= {SECONDS_MAX:.0f} s",
        f"reading {files:,} files alone {read:.1f} s; broker {cpu:.1f} s of CPU",
        delivered <= SECONDS_MAX,
    )
    found = messages(broker.port, count)
    if found != count * (MESSAGES - 1):
        raise RuntimeError(f"{found:,} messages of {count * (MESSAGES - 1):,} came back")


def many_queues(bench: Bench) -> Iterator[Figure]:
    """T-Q5: a start after kill -9, and a second one whose files have to come from the disk."""
    count = bench.sized(300, 100_000)
    broker = bench.broker()
    began = time.perf_counter()
    fill(broker.port, count)
    filled = time.perf_counter() - began
    take_one_of_each(broker.port, count)
    yield Figure(
        f"{count:,} queues declared, {count * MESSAGES:,} messages confirmed", f"{filled:.1f} s"
    )
    yield from _restart(broker, count, forget=False)
    yield from _restart(broker, count, forget=True)


ROWS = (Row("T-Q5", "a node with 100,000 queues is soon back", many_queues),)
