"""`python -m tests.bench.streams`: row S7, a stream with one publisher and ten readers.

First the messages are published with confirms, without a reader: what of them stays in memory.
Then every reader reads the log from its first message to its last: CPU per delivery, and what a
probe on a connection of its own notices meanwhile. Last, one reader asks for a header that a single
message has, so that the broker reads everything and gives nothing.
"""

from __future__ import annotations

import argparse
import selectors
import sys
import tempfile
import time
from pathlib import Path

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.bench import processes
from tests.bench.policies import Probe

BATCH = 5_000
PREFETCH = 20_000
STREAM = "S7"
TABLE = {"x-queue-type": "stream"}


def fill(client: Client, count: int) -> float:
    """Seconds until so many messages, and one with a header of its own, are confirmed."""
    one = raw.publish(1, "", STREAM, b"x" * 100, delivery_mode=2)
    rare = raw.publish(1, "", STREAM, b"x" * 100, delivery_mode=2, headers={"kind": "rare"})
    start = time.perf_counter()
    for first in range(1, count + 1, BATCH):
        last = min(first + BATCH - 1, count)
        client.send(one * (last - first + 1))
        client.expect_confirms(1, last, first=first)
    client.send(rare)
    client.expect_confirms(1, count + 1, first=count + 1)
    return time.perf_counter() - start


class Reader:
    """A consumer from the first message on, which counts octets: all deliveries are of one size."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.client = Client.open(address)
        self.client.call(1, "basic.qos", prefetch_count=PREFETCH)
        arguments = {"x-stream-offset": "first"}
        self.client.call(1, "basic.consume", queue=STREAM, consumer_tag="c", arguments=arguments)
        self.octets, self.acked = len(self.client.buffer), 0

    def take(self, size: int) -> int:
        """Reads what is there and acks it in large steps; messages so far."""
        self.octets += len(self.client.socket.recv(1 << 20))
        seen = self.octets // size
        if seen - self.acked >= PREFETCH // 4:
            self.acked = seen
            self.client.send_method(1, "basic.ack", delivery_tag=seen, multiple=True)
        return seen


def delivery_size(address: tuple[str, int]) -> int:
    """Octets of one delivery."""
    client = Client.open(address)
    client.call(1, "basic.qos", prefetch_count=1)
    arguments = {"x-stream-offset": "first"}
    client.call(1, "basic.consume", queue=STREAM, consumer_tag="c", arguments=arguments)
    octets = sum(len(client.read_frame().payload) + 8 for _ in range(3))
    client.close()
    return octets


def read(address: tuple[str, int], readers: int, count: int) -> float:
    """Seconds until every reader has had so many messages."""
    size = delivery_size(address)
    selector = selectors.DefaultSelector()
    start = time.perf_counter()
    for _ in range(readers):
        reader = Reader(address)
        selector.register(reader.client.socket, selectors.EVENT_READ, reader)
    waiting = readers
    while waiting:
        for key, _ in selector.select():
            if key.data.take(size) >= count:
                selector.unregister(key.fileobj)
                key.data.client.cut()
                waiting -= 1
    return time.perf_counter() - start


def search(address: tuple[str, int]) -> float:
    """Seconds until a reader has the one message that has a header."""
    with Client.open(address, timeout=600.0) as client:
        client.call(1, "basic.qos", prefetch_count=1)
        arguments = {"x-stream-offset": "first", "x-stream-filter": {"kind": "rare"}}
        start = time.perf_counter()
        client.call(1, "basic.consume", queue=STREAM, arguments=arguments)
        client.expect_message(channel=1)
        return time.perf_counter() - start


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.streams", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--readers", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        broker = Appliance("broker", Path(directory)).start()
        address = (broker.host, broker.amqp_port)
        pids = [broker.pids["broker"]]
        with Client.open(address, timeout=60.0) as client:
            client.call(1, "confirm.select")
            client.call(1, "queue.declare", queue=STREAM, durable=True, arguments=TABLE)
            fill(client, BATCH)
            client.call(1, "queue.purge", queue=STREAM)
            client.call(1, "channel.close")
            client.call(1, "channel.open")
            client.call(1, "confirm.select")
            before, cpu = processes.settled_bytes(pids), processes.cpu_seconds(pids)
            seconds = fill(client, options.messages)
            used = processes.cpu_seconds(pids) - cpu
            grown = processes.settled_bytes(pids) - before
        print(
            f"published {options.messages:,} in {seconds:.1f} s, "
            f"{used / options.messages * 1e6:.2f} us of CPU each; memory {grown / 2**20:+.1f} MiB"
        )
        probe = Probe(broker.amqp_port)
        probe.start()
        time.sleep(2)
        print("probe at rest: p50 {:.2f}, p99 {:.2f}, worst {:.2f} ms".format(*probe.taken()))
        cpu = processes.cpu_seconds(pids)
        seconds = read(address, options.readers, options.messages)
        used = processes.cpu_seconds(pids) - cpu
        given = options.messages * options.readers
        print(
            f"{options.readers} readers: {given:,} deliveries in {seconds:.1f} s, "
            f"{used / given * 1e6:.2f} us of CPU each"
        )
        print("probe meanwhile: p50 {:.2f}, p99 {:.2f}, worst {:.2f} ms".format(*probe.taken()))
        cpu = processes.cpu_seconds(pids)
        seconds = search(address)
        used = processes.cpu_seconds(pids) - cpu
        print(
            f"a header searched in {seconds:.1f} s, {used / options.messages * 1e6:.2f} us of CPU "
            "per record"
        )
        print("probe meanwhile: p50 {:.2f}, p99 {:.2f}, worst {:.2f} ms".format(*probe.taken()))
        print(f"memory at the end {(processes.settled_bytes(pids) - before) / 2**20:+.1f} MiB")
        probe.over.set()
        probe.join()
        broker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
