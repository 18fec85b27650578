"""`python -m tests.bench.priorities`: what priority levels cost: memory for each queued message,
and the broker's CPU for a publish and a delivery (rows P0 to P255).

The same messages go to a queue without levels, one with 10 priorities and one with all 256, first
all in, then all out. If a publish or a delivery looked at every level, the last row would show it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench import processes
from tests.bench.client import Client, method, short
from tests.bench.leveret import Leveret

LEVELS = (0, 9, 255)
"""x-max-priority of the rows; 9 makes ten priorities."""
BLOCK = 25_600
BODY = bytes(16)


@dataclass(frozen=True)
class Figures:
    """Of one queue: bytes of memory a message, µs of CPU a publish and a delivery."""

    message_bytes: float
    publish_us: float
    deliver_us: float


def _block(queue: str, levels: int) -> bytes:
    """`BLOCK` persistent messages whose priorities take turns."""
    publish = method(1, 60, 40, b"\0\0" + short("") + short(queue) + b"\0")
    body = b"\3\0\1" + struct.pack(">I", len(BODY)) + BODY + b"\xce"
    parts = []
    for number in range(256):
        # Properties: delivery-mode 2 and the priority.
        priority = number % (levels + 1)
        header = struct.pack(">HHQHBB", 60, 0, len(BODY), 1 << 12 | 1 << 11, 2, priority)
        parts.append(publish + b"\2\0\1" + struct.pack(">I", len(header)) + header + b"\xce" + body)
    return b"".join(parts) * (BLOCK // 256)


def _drain(client: Client, queue: str, count: int) -> None:
    """Takes `count` messages, all of one size on the wire, without looking at them."""
    tag = "t"
    deliver = 8 + 4 + len(short(tag)) + 8 + 1 + len(short("")) + len(short(queue))
    wanted = count * (deliver + 8 + 14 + 2 + 8 + len(BODY))
    # Without acks and without an answer: only deliveries come.
    consume = b"\0\0" + short(queue) + short(tag) + b"\x0a" + b"\0\0\0\0"
    client.send(method(1, 60, 20, consume))
    got = 0
    while got < wanted:
        got += len(client.socket.recv(1 << 18))
    assert got == wanted, f"{got} bytes instead of {wanted}"


def measure(broker: Leveret, levels: int, count: int) -> Figures:
    """A queue with two times `count` messages (rounded down to whole blocks), filled and drained.
    The second half is measured: with the first one, each level takes what it takes once."""
    client = Client(broker.port)
    queue = f"levels{levels:03}"
    arguments = b"\x0ex-max-priorityI" + struct.pack(">i", levels)
    table = struct.pack(">I", len(arguments)) + arguments
    client.send(method(1, 50, 10, b"\0\0" + short(queue) + b"\2" + table))
    client.wait(50, 11)
    block = _block(queue, levels)
    blocks = count // BLOCK
    for _ in range(blocks):
        client.send(block)
    client.qos(0)
    before = processes.settled_bytes(broker.pids())
    cpu = processes.cpu_seconds(broker.pids())
    for _ in range(blocks):
        client.send(block)
    client.qos(0)
    publish = processes.cpu_seconds(broker.pids()) - cpu
    after = processes.settled_bytes(broker.pids())
    messages = 2 * blocks * BLOCK
    assert client.declare_queue(queue, passive=True) == messages
    drainer = Client(broker.port)
    cpu = processes.cpu_seconds(broker.pids())
    _drain(drainer, queue, messages)
    deliver = processes.cpu_seconds(broker.pids()) - cpu
    drainer.abort()
    client.delete_queue(queue)
    client.close()
    added = blocks * BLOCK
    return Figures((after - before) / added, publish / added * 1e6, deliver / messages * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.priorities")
    parser.add_argument("--count", type=int, default=2_000_000, help="messages measured a queue")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="leveret-bench-"))
    broker = Leveret(base / "leveret")
    broker.start()
    try:
        found: dict[int, list[Figures]] = {levels: [] for levels in LEVELS}
        for _ in range(options.rounds):
            for levels in LEVELS:
                found[levels].append(measure(broker, levels, options.count))
        print(f"commit {broker.version}; {options.count:,} persistent messages of 16 B a queue")
        print(f"{'':6}{'priorities':>11}{'bytes/msg':>11}{'publish µs':>12}{'deliver µs':>12}")
        for levels, rows in found.items():
            memory = statistics.median(row.message_bytes for row in rows)
            publish = statistics.median(row.publish_us for row in rows)
            deliver = statistics.median(row.deliver_us for row in rows)
            print(f"P{levels:<5}{levels + 1:11}{memory:11.2f}{publish:12.3f}{deliver:12.3f}")
    finally:
        broker.stop()
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
