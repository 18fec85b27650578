"""`python -m tests.bench.perf`: the generator in C and `manage.py perf`, in turn, on one broker.

Both put the same load on the same broker in the same run, so that it shows how much of the
generator's figure `perf` reaches. The generator stays the measure of record.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import generator
from tests.bench.leveret import REPOSITORY, Leveret
from tests.bench.rabbitmq import NotAvailable, RabbitMQ

# Name, options of the generator, options of perf. Both with one publisher and one consumer.
LOADS = (
    ("16 B transient, auto-ack", ("--in-flight", "100000"), ()),
    (
        "16 B persistent, confirm 1000, ack 100",
        ("--persistent", "--confirm", "1000", "--ack", "100", "--prefetch", "1000"),
        ("-p", "-c", "1000", "-a", "100", "-P", "1000"),
    ),
    (
        "1 KiB persistent, confirm 1000, ack 100",
        (
            *("--body", "1024", "--persistent", "--confirm", "1000"),
            *("--ack", "100", "--prefetch", "1000"),
        ),
        ("-s", "1024", "-p", "-c", "1000", "-a", "100", "-P", "1000"),
    ),
)


def by_generator(port: int, options: tuple[str, ...], seconds: float) -> float:
    """Messages a second that the generator's consumer got."""
    result = generator.run(port, [*options, "--warmup", "0.5", "--duration", str(seconds)])
    return float(result["rate"])


def by_perf(port: int, options: tuple[str, ...], seconds: float) -> float:
    """Messages a second that perf's consumer got."""
    command = [sys.executable, str(REPOSITORY / "manage.py"), "perf", "throughput", "--json"]
    command += ["--uri", f"amqp://127.0.0.1:{port}", "-z", str(seconds), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY)
    result: dict[str, Any] = json.loads(done.stdout)
    return float(result["avg_consume_rate"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.perf", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a measurement (2)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the median counts (3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leveret-perf-") as base:
        brokers: list[Leveret | RabbitMQ] = [Leveret(Path(base) / "leveret")]
        try:
            brokers.append(RabbitMQ(Path(base) / "rabbitmq"))
        except NotAvailable as error:
            print(f"RabbitMQ: not run: {error}")
        print("| Broker | Load | generator, msgs/s | perf, msgs/s | ratio |")
        print("| --- | --- | --- | --- | --- |")
        for broker in brokers:
            broker.start()
            try:
                for load, ours, perfs in LOADS:
                    rates: list[tuple[float, float]] = []
                    for _ in range(options.rounds):
                        first = by_generator(broker.port, ours, options.seconds)
                        rates.append((first, by_perf(broker.port, perfs, options.seconds)))
                    c, perf = (statistics.median(column) for column in zip(*rates, strict=True))
                    print(f"| {broker.name} | {load} | {c:,.0f} | {perf:,.0f} | {perf / c:.2f} |")
            finally:
                broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
