"""`python -m tests.bench.operations`: the broker's CPU for an operation of a client that waits for
each answer, beside the bare system calls.

A program in C (answers.c) receives and sends the same and does nothing else. `--against` measures
another checkout in the same rounds. The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench import bare, generator
from tests.bench.leveret import running

OPERATIONS = ("connection", "channel", "consume", "bind", "declare")
WARM_UP_S = 0.2

Measure = Callable[[str], float]
"""Microseconds of CPU for an operation."""


def measured(port: int, operation: str, pids: list[int], seconds: float = 0.7) -> float:
    options = ["--operation", operation, "--warmup", str(WARM_UP_S), "--duration", str(seconds)]
    return float(generator.run(port, options, pids)["cpu_us_per_message"])


def compare(measures: dict[str, Measure], rounds: int) -> None:
    """Prints a line for each operation."""
    print(f"{'us for each':12}" + "".join(f"{name:>28}" for name in measures))
    for operation in OPERATIONS:
        rows = [[measure(operation) for measure in measures.values()] for _ in range(rounds)]
        cells = []
        for row in zip(*rows, strict=True):
            spread = f"({min(row):.0f} to {max(row):.0f})"
            cells.append(f"{statistics.median(row):>12.1f} {spread:>15}")
        print(f"{operation:12}" + "".join(cells), flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.operations", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, built")
    options = parser.parse_args(arguments)
    with bare.running("answers") as (server, port), running(options.against) as brokers:
        measures: dict[str, Measure] = {
            "bare": lambda operation: measured(port, operation, [server.pid])
        }
        for broker in brokers:
            measures[broker.name] = lambda operation, broker=broker: measured(
                broker.port, operation, broker.pids()
            )
        compare(measures, options.rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
