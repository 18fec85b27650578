"""Rounds on a full disk: fill it, kill and restart the broker on it or not, drain, go on.

Some messages go to both queues, so that their bodies are shared; each index of those has a broker
and a disk of its own, in turn.

`python -m tests.store.full_disk --rounds 100` runs many; a violation ends it with a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.amqp.raw import HEADER, METHOD, Client, Method, decode_method, publish
from tests.appliance import Appliance
from tests.disks import SmallDisk

QUEUES = ("full.a", "full.b")
BOTH = "full.both"  # the exchange that has both queues
INDEXES = ("ram", "leveldb")
WINDOW = 300
RESERVE = 2 << 20
WAYS = ("publishing", "another file", "acks")
WAIT_S = 30.0


Place = tuple[str, int]
"""Queue and number of a message."""


def places(number: int) -> tuple[Place, ...]:
    """Where a message goes: every fourth one to both queues."""
    if number % 4 == 3:
        return tuple((queue, number) for queue in QUEUES)
    return ((QUEUES[number % 2], number),)


def places_of(numbers: set[int]) -> set[Place]:
    return {place for number in numbers for place in places(number)}


@dataclass
class Publisher:
    """Publishes numbered messages with confirms to both queues until it is blocked."""

    address: tuple[str, int]
    numbers: range
    size: int
    confirmed: set[int] = field(default_factory=set)
    blocked: bool = False

    def __post_init__(self) -> None:
        self.client = Client.open(self.address)
        self.client.call(1, "confirm.select")
        self.first = self.numbers.start
        self.sent = 0
        self.settled = 0

    def publish(self, number: int) -> None:
        targets = places(number)
        exchange, key = (BOTH, "") if len(targets) > 1 else ("", targets[0][0])
        body = struct.pack(">Q", number) + bytes(self.size)
        self.client.send(publish(1, exchange, key, body, delivery_mode=2))
        self.sent += 1

    def take(self, timeout: float) -> bool:
        """Takes one frame; false if none comes in time."""
        if not self.client.buffer:
            self.client.socket.settimeout(timeout)
            try:
                self.client.buffer += self.client.socket.recv(1 << 16) or b""
            except TimeoutError:
                return False
            finally:
                self.client.socket.settimeout(self.client.timeout)
        got = self.client.read_method()
        if got.name == "connection.blocked":
            self.blocked = True
        elif got.name == "connection.unblocked":
            self.blocked = False
        else:
            self._settle(got)
        return True

    def _settle(self, got: Method) -> None:
        assert got.name == "basic.ack", got
        tag = got.delivery_tag
        first = self.settled if got.multiple else tag - 1
        self.confirmed.update(range(self.first + first, self.first + tag))
        self.settled = max(self.settled, tag)

    def run(self) -> None:
        """Until it is blocked, or all numbers are sent."""
        for number in self.numbers:
            if self.blocked:
                return
            self.publish(number)
            while not self.blocked and self.sent - len(self.confirmed) >= WINDOW:
                if not self.take(1.0):
                    # What is in memory waits for space. Only the next publish is blocked.
                    break
        while not self.blocked and len(self.confirmed) < self.sent:
            assert self.take(WAIT_S), "neither confirmed nor blocked"

    def finish(self) -> None:
        """Everything that was sent is confirmed."""
        deadline = time.monotonic() + WAIT_S
        while len(self.confirmed) < self.sent:
            assert self.take(deadline - time.monotonic()), "not confirmed after the alarm"


def drain(address: tuple[str, int]) -> list[Place]:
    """Consumes and acks all there is, queue by queue, in the order of delivery."""
    numbers: list[Place] = []
    with Client.open(address, timeout=WAIT_S) as client:
        for queue in QUEUES:
            client.call(1, "basic.consume", queue=queue, consumer_tag=queue)
            while True:
                count = client_count(client, queue, numbers)
                if count == 0:
                    break
            client.send_method(1, "basic.cancel", consumer_tag=queue)
            until(client, "basic.cancel-ok", numbers)
    return numbers


def until(client: Client, name: str, numbers: list[Place]) -> Method:
    """Takes deliveries, each acked, until the method comes."""
    tag = 0
    unacked = 0
    queue = ""
    while True:
        got = client.read_frame()
        if got.type == METHOD:
            method = decode_method(got.payload, got.channel)
            if method.name == "basic.deliver":
                tag, queue = method.delivery_tag, method.consumer_tag
            else:
                if unacked:
                    client.send_method(1, "basic.ack", delivery_tag=tag, multiple=True)
                assert method.name == name, method
                return method
        elif got.type != HEADER and tag:
            numbers.append((queue, struct.unpack_from(">Q", got.payload)[0]))
            unacked += 1
            if unacked == 100:
                client.send_method(1, "basic.ack", delivery_tag=tag, multiple=True)
                unacked = 0


def client_count(client: Client, queue: str, numbers: list[Place]) -> int:
    """Messages that are ready or unacked, as a second look at the queue says."""
    client.send_method(1, "queue.declare", queue=queue, passive=True)
    ready: int = until(client, "queue.declare-ok", numbers).message_count
    return ready


@dataclass
class FullDisk:
    """One small disk and the broker on it, for many rounds."""

    broker: Appliance
    disk: SmallDisk
    seed: int
    next_number: int = 0
    owed: set[Place] = field(default_factory=set)
    """Confirmed and not yet drained."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.wait_for_reserve()
        with Client.open(self.address) as client:
            client.call(1, "exchange.declare", exchange=BOTH, type="fanout", durable=True)
            for queue in QUEUES:
                client.call(1, "queue.declare", queue=queue, durable=True)
                client.call(1, "queue.bind", queue=queue, exchange=BOTH)

    @property
    def address(self) -> tuple[str, int]:
        return self.broker.host, self.broker.amqp_port

    def round(self, way: str, kill: bool) -> str:
        """One round. Returns what happened, in words."""
        size = 8 if way == "acks" else self.random.choice((100, 1000, 8000))
        numbers = range(self.next_number, self.next_number + (40_000_000 // (size + 60)))
        self.next_number = numbers.stop
        publisher = Publisher(self.address, numbers, size)
        if way != "publishing":
            # Few enough to leave space: what is sent before the disk is full is confirmed.
            first = numbers[: min(self.random.randrange(2000, 4000), (8 << 20) // size)]
            publisher.numbers = first
            publisher.run()
            self.disk.fill(leave=self.random.choice((0, 0, 4096, 65536)))
            publisher.numbers = numbers[len(first) :]
        began = time.monotonic()
        publisher.run()
        assert publisher.blocked, "the disk was never full enough"
        noticed = time.monotonic() - began
        if kill:
            self.broker.kill()
            self.broker.start()
            publisher.client.cut()
        free = self.disk.free
        drained = drain(self.address)
        assert len(drained) == len(set(drained)), "a message came twice without a kill between"
        lost = (places_of(publisher.confirmed) | self.owed) - set(drained)
        assert not lost, f"{len(lost)} confirmed messages are lost, such as {min(lost)}"
        strange = {number for _, number in drained} - set(numbers)
        assert not strange, f"{len(strange)} messages of earlier rounds came again"
        self.disk.clear()
        self.owed = set()
        if kill:
            self.go_on()
        else:
            publisher.finish()
            self.owed = places_of(publisher.confirmed) - set(drained)
            left = set(drain(self.address))
            lost = self.owed - left
            assert not lost, f"lost {len(lost)} confirmed after the alarm, such as {min(lost)}"
            self.owed = set()
            publisher.client.cut()
        return (
            f"filled by {way}, {free >> 10} KiB free, blocked after {noticed:.2f} s, "
            f"{len(publisher.confirmed)} confirmed{', killed' if kill else ''}"
        )

    def wait_for_reserve(self) -> None:
        """Until the broker has looked and made its reserve."""
        reserve = self.broker.data_dir / "reserve"
        deadline = time.monotonic() + WAIT_S
        while not reserve.exists() or reserve.stat().st_size < RESERVE:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def go_on(self) -> None:
        """Publishing works again by itself."""
        number = self.next_number
        self.next_number += 1
        publisher = Publisher(self.address, range(number, number + 1), 100)
        publisher.publish(number)
        publisher.finish()
        publisher.client.cut()
        assert set(drain(self.address)) == set(places(number))


SETTINGS = {
    "disk_free_limit": "4MiB",
    "disk_reserve": str(RESERVE),
    "segment_size": "256KiB",
    "tail_memory": "1MiB",
    "embed_below": 16,
    "body_file_size": "1MiB",
    "message_store_index_write_buffer": "256KiB",
}


@contextlib.contextmanager
def full_disk(index: str, seed: int) -> Iterator[FullDisk]:
    """A disk and a broker that keeps its index of shared bodies in `index`."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        disk = SmallDisk(place / "disk", 32 << 20)
        settings = {**SETTINGS, "message_store_index": index}
        broker = Appliance("broker", place, data_dir=disk.path / "data", **settings)
        try:
            yield FullDisk(broker.start(), disk, seed)
        finally:
            if broker.process is not None:
                broker.kill()
            disk.unmount()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    random_ = random.Random(options.seed)
    with contextlib.ExitStack() as stack:
        full = {index: stack.enter_context(full_disk(index, options.seed)) for index in INDEXES}
        for number in range(options.rounds):
            index = INDEXES[number % len(INDEXES)]
            words = full[index].round(random_.choice(WAYS), random_.random() < 0.5)
            print(f"{number + 1}: {index}: {words}", flush=True)
        for each in full.values():
            each.broker.close()
    print(f"{options.rounds} rounds, 0 confirmed messages lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
