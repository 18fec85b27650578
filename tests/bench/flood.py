"""`python -m tests.bench.flood`: what consumers take while publishers flood their queue, beside
what the same consumers take alone from a backlog.

Four publishers without confirms and four consumers that ack each message, prefetch 100. Publishers
and consumers are two processes of the generator, pinned alike in both runs. The median of the
rounds counts; `--against` measures another checkout in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import generator
from tests.bench.leveret import Leveret

CONSUMERS = ("--publishers", "0", "--consumers", "4", "--ack", "1", "--prefetch", "100")
PUBLISHERS = ("--publishers", "4", "--consumers", "0")
BACKLOG = 100_000
BEGUN_S = 0.3
"""The flood runs for so long before the consumers come."""


def command(port: int, name: str, cpu: int, options: tuple[str, ...]) -> list[str]:
    """The generator on one processor, on a queue that it leaves as it is."""
    pinned = ["taskset", "-c", str(cpu)] if cpu >= 0 else []
    where = ["--port", str(port), "--name", name, "--keep", "--durable", "0"]
    return [*pinned, str(generator.build()), *where, *options]


def rate(port: int, name: str, cpu: int, count: int) -> float:
    """Deliveries a second of the consumers, until they have taken `count`. Bodies of several
    publishers with the same number follow each other here: the generator's other counts are of no
    use."""
    options = (*CONSUMERS, "--count", str(count))
    done = subprocess.run(command(port, name, cpu, options), capture_output=True, text=True)
    if not done.stdout:
        raise generator.GeneratorFailed(done.stderr)
    return float(json.loads(done.stdout)["rate"])


def measure(broker: Leveret, name: str, options: argparse.Namespace) -> tuple[float, float]:
    """Deliveries a second alone, and meanwhile."""
    count = str(options.messages + BACKLOG)
    filled = ("--publishers", "1", "--consumers", "0", "--count", count)
    port, cpu = broker.port, options.generator_cpu
    subprocess.run(command(port, name, cpu, filled), check=True, stdout=subprocess.DEVNULL)
    alone = rate(port, name, cpu, options.messages)
    flood = (*PUBLISHERS, "--duration", str(options.seconds))
    with subprocess.Popen(command(port, name, cpu, flood), stdout=subprocess.DEVNULL) as publishers:
        time.sleep(BEGUN_S)
        meanwhile = rate(port, name, cpu, options.meanwhile)
        if publishers.poll() is not None:
            raise generator.GeneratorFailed(
                "the flood ended before the consumers: more --seconds, or less --meanwhile"
            )
        publishers.wait()
    last = ("--publishers", "1", "--consumers", "0", "--count", "1")
    deleting = [each for each in command(port, name, cpu, last) if each != "--keep"]
    subprocess.run(deleting, check=True, stdout=subprocess.DEVNULL)
    return alone, meanwhile


def pinned(broker: Leveret, cpu: int) -> None:
    """All threads of the broker, on one processor."""
    for pid in broker.pids() if cpu >= 0 else ():
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cpu})


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flood", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of the flood")
    parser.add_argument("--messages", type=int, default=4_000_000, help="that consumers take alone")
    parser.add_argument(
        "--meanwhile",
        type=int,
        default=1_000_000,
        help="messages that they take during the flood; ff8fe0b takes 100,000 a second",
    )
    parser.add_argument("--broker-cpu", type=int, default=0, help="-1: any")
    parser.add_argument("--generator-cpu", type=int, default=1, help="-1: any")
    parser.add_argument("--against", type=Path, help="another checkout, built")
    parser.add_argument("--leveret-args", default="", help="more options for the broker")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        brokers = [Leveret(base / "leveret", options.leveret_args.split())]
        if options.against:
            brokers.append(Leveret(base / "before", tree=options.against.resolve(), name="before"))
        found: dict[str, list[tuple[float, float]]] = {broker.name: [] for broker in brokers}
        try:
            for broker in brokers:
                broker.start()
                pinned(broker, options.broker_cpu)
            for number in range(options.rounds):
                for broker in brokers:
                    found[broker.name].append(measure(broker, f"flood-{number}", options))
        finally:
            for broker in brokers:
                broker.stop()
    for name, rows in found.items():
        alone, meanwhile = (statistics.median(row[at] for row in rows) for at in (0, 1))
        ratios = sorted(row[1] / row[0] for row in rows)
        print(
            f"{name:10} alone {alone:>11,.0f}/s   meanwhile {meanwhile:>11,.0f}/s"
            f"   ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
