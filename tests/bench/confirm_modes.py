"""`python -m tests.bench.confirm_modes`: what a confirm costs when it waits for the disk, for the
consumer's ack, and for the ack with nothing stored (rows T-C1 and T-C2).

The table is that of the work the modes come from: persistent messages of 1500 bytes; for each queue
two publishers and three consumers, each on a channel of its own, every delivery acked. Its ratios
to the mode `write` stand beside ours. They were taken on another broker whose write mode had other
costs; window 1000 hides most of ours behind the group commit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.amqp import raw
from tests.bench import generator, limits, processes
from tests.bench.leveret import Leveret

MODES = ("write", "ack", "ack-lean")
QUEUES = (1, 2, 15, 30)
WINDOWS = (1, 10, 100, 1000)
PAPER = {1: (3.08, 3.48), 2: (2.01, 2.16), 15: (1.409, 1.526), 30: (1.403, 1.534)}
"""Queues -> ratio of mode ack and of mode ack-lean to mode write."""
BACKLOG = 1_000_000


def rate(broker: Leveret, queues: int, window: int, mode: str, seconds: float) -> float:
    """Messages per second from publish to the consumer's ack and the publisher's confirm."""
    options = ["--body", "1500", "--persistent", "--queues", str(queues)]
    options += ["--publishers", str(2 * queues), "--consumers", str(3 * queues)]
    options += ["--confirm", str(window), "--ack", "1", "--prefetch", "1000"]
    options += ["--confirm-on", mode, "--warmup", "0.5", "--duration", str(seconds)]
    result: float = generator.run(broker.port, options, broker.pids())["rate"]
    return result


def table(broker: Leveret, rounds: int, seconds: float, queues: list[int]) -> list[str]:
    """T-C1 as lines: messages per second by queues, window and mode, and the ratios."""
    lines = ["T-C1: messages/s of 1500 B, ratio to write; the paper's ratios for ack, ack-lean"]
    lines.append(
        f"{'queues':>6} {'window':>6} {'write':>9} {'ack':>9} {'ratio':>6} {'lean':>9} {'ratio':>6}"
    )
    for count in queues:
        for window in WINDOWS:
            rates: dict[str, list[float]] = {mode: [] for mode in MODES}
            for _ in range(rounds):
                for mode in MODES:
                    rates[mode].append(rate(broker, count, window, mode, seconds))
            write, ack, lean = (statistics.median(rates[mode]) for mode in MODES)
            lines.append(
                f"{count:>6} {window:>6} {write:>9,.0f} {ack:>9,.0f} {ack / write:>6.2f} "
                f"{lean:>9,.0f} {lean / write:>6.2f}"
                + (f"   paper {PAPER[count][0]} / {PAPER[count][1]}" if window == 100 else "")
            )
    return lines


def backlog(broker: Leveret) -> str:
    """T-C2: memory for each message of a backlog whose publisher waits for consumers (mode ack)."""
    with raw.Client.open(("127.0.0.1", broker.port)) as client:
        client.call(1, "confirm.select")
        arguments = {"x-confirm-on": "ack"}
        client.call(1, "queue.declare", queue="backlog", durable=True, arguments=arguments)
        batch = raw.publish(1, "", "backlog", bytes(16), delivery_mode=2) * 1000
        client.send(batch * 10)
        # Answered after a round: what was gathered in memory is written.
        client.call(1, "queue.declare", queue="first", durable=True)
        before = processes.resident_bytes(broker.pids())
        for _ in range(BACKLOG // 1000):
            client.send(batch)
        client.call(1, "queue.declare", queue="second", durable=True)
        grown = processes.resident_bytes(broker.pids()) - before
    return f"T-C2: {grown / BACKLOG:.2f} bytes of memory per message in a backlog (at most 1)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.confirm_modes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--queues", default=",".join(map(str, QUEUES)))
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="leveret-bench-"))
    broker = Leveret(base / "leveret")
    broker.start()
    try:
        sync = limits.measure_sync(base)
        print(f"commit {broker.version}; one append and fdatasync: p50 {sync.p50_ms:.2f} ms")
        queues = [int(count) for count in options.queues.split(",")]
        for line in table(broker, options.rounds, options.seconds, queues):
            print(line, flush=True)
        print(backlog(broker))
    finally:
        broker.stop()
        shutil.rmtree(base, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
