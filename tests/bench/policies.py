"""`python -m tests.bench.policies`: how soon a policy reaches many queues, and what others notice.

A probe publishes and receives a message every 2 ms on a connection of its own; its latency is
measured before anything changes and while a policy is set, changed and removed.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from management.broker_client import BrokerClient
from tests.bench.client import Client, Delivery, method, publish, short
from tests.bench.leveret import Leveret
from tests.bench.processes import cpu_seconds

BATCH = 2_000
SECONDS_MAX, RATIO_MAX = 5.0, 2.0

STEPS: tuple[tuple[str, dict[str, Any] | None], ...] = (
    ("set max-length", {"max-length": 1_000_000}),
    ("also a TTL", {"max-length": 1_000_000, "message-ttl": 86_400_000}),
    ("drop all but one", {"max-length": 1}),
    ("remove", None),
)


class Probe(threading.Thread):
    """One message at a time, publish to receipt. `times` are seconds."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.client = Client(port)
        self.client.declare_queue("probe", durable=False)
        self.client.consume("probe", "probe", no_ack=True)
        self.times: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        frame = publish("", "probe", b"probe", False)
        while not self.over.wait(0.002):
            start = time.perf_counter()
            self.client.send(frame)
            while not any(isinstance(event, Delivery) for event in self.client.events):
                self.client.receive()
            self.client.events.clear()
            self.times.append(time.perf_counter() - start)

    def taken(self) -> tuple[float, float, float]:
        """p50, p99 and the worst in ms since the last call."""
        times, self.times = sorted(self.times), []
        if not times:
            return 0.0, 0.0, 0.0
        p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
        return statistics.median(times) * 1e3, p99 * 1e3, times[-1] * 1e3


def declare(client: Client, count: int, filled: int, messages: int) -> None:
    """`count` queues, of which the first `filled` get so many messages each."""
    for start in range(0, count, BATCH):
        names = [f"policy.{number:07d}" for number in range(start, min(start + BATCH, count))]
        # nowait: without replies.
        frames = [
            method(1, 50, 10, b"\0\0" + short(name) + b"\x12" + b"\0\0\0\0") for name in names
        ]
        frames += [
            publish("", name, b"x" * 16, True) * messages
            for name in names[: max(0, filled - start)]
        ]
        client.send(b"".join(frames))
        client.qos(0)


async def measure(
    broker: Leveret, probe: Probe
) -> list[tuple[str, float, float, float, float, float]]:
    """(step, seconds until applied, CPU seconds of that, p50, p99, worst in ms) for each step."""
    control = BrokerClient(broker.directory / "data" / "control.sock")
    rows = []
    try:
        await asyncio.sleep(5)
        rows.append(("before", 0.0, 0.0, *probe.taken()))
        named = {"vhost": "/", "name": "bench"}
        for step, definition in STEPS:
            start, before = time.perf_counter(), cpu_seconds(broker.pids())
            if definition is None:
                await control.call("policy.delete", **named)
            else:
                args = {**named, "pattern": "^policy", "definition": definition}
                await control.call("policy.put", **args)
            seconds, cpu = time.perf_counter() - start, cpu_seconds(broker.pids()) - before
            # What the change has set off (drops, timers) belongs to it.
            await asyncio.sleep(max(0.0, 2.0 - seconds))
            rows.append((step, seconds, cpu, *probe.taken()))
    finally:
        await control.close()
    return rows


def main() -> int:
    """Exit status 0 if every policy came in time and the probe's p99 stayed within the budget."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.policies", description=__doc__)
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--filled", type=int, default=2_000, help="queues that hold messages")
    parser.add_argument("--messages", type=int, default=50, help="messages in each of those")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the broker is ended
    base = Path(tempfile.mkdtemp(prefix="leveret-bench-"))
    broker = Leveret(base / "leveret")
    try:
        broker.start()
        client = Client(broker.port)
        start = time.perf_counter()
        declare(client, options.queues, options.filled, options.messages)
        seconds = time.perf_counter() - start
        print(f"{options.queues:,} queues declared in {seconds:.1f} s")
        probe = Probe(broker.port)
        probe.start()
        rows = asyncio.run(measure(broker, probe))
        probe.over.set()
        probe.join()
    except Exception:
        print((broker.directory / "output").read_text(errors="replace")[-2000:], file=sys.stderr)
        raise
    finally:
        broker.stop()
        shutil.rmtree(base, ignore_errors=True)
    print(f"{'step':<18}{'seconds':>9}{'CPU s':>9}{'p50 ms':>9}{'p99 ms':>9}{'worst':>9}")
    for step, seconds, cpu, p50, p99, worst in rows:
        print(f"{step:<18}{seconds:>9.2f}{cpu:>9.2f}{p50:>9.2f}{p99:>9.2f}{worst:>9.1f}")
    late = max(seconds for _, seconds, *_ in rows)
    ratio = max(row[4] for row in rows[1:]) / rows[0][4]
    print(f"slowest {late:.2f} s (budget {SECONDS_MAX}); p99 {ratio:.1f} x (budget {RATIO_MAX})")
    return 0 if late <= SECONDS_MAX and ratio <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
