"""`python -m tests.bench.churn`: what a client's latency suffers from 1,000 connections a second of
others.

A probe sends 1,000 messages a second, each in a write of its own, and measures from write to
receipt. Meanwhile another process of the generator opens connections with a channel and closes
them, one after the other. `--against` measures another checkout in the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import generator
from tests.bench.leveret import Leveret

PROBE = ("--flush", "--rate", "1000")
BEGUN_S = 0.3
"""The connections come for so long before the probe."""


def probe(port: int, seconds: float) -> float:
    """The 99th percentile, in milliseconds."""
    found: dict[str, Any] = generator.run(port, [*PROBE, "--duration", str(seconds)])
    return float(found["latency_us"]["p99"]) / 1000


def meanwhile(port: int, seconds: float, rate: int) -> tuple[float, float]:
    """The same while connections come and go, and how many did a second."""
    churn = ["--port", str(port), "--operation", "connection", "--rate", str(rate)]
    duration = ["--warmup", str(BEGUN_S), "--duration", str(seconds), "--name", "churn"]
    command = [str(generator.build()), *churn, *duration]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as others:
        time.sleep(BEGUN_S)
        found = probe(port, seconds)
        told, _ = others.communicate()
    if others.returncode:
        raise generator.GeneratorFailed(told)
    return found, float(generator.read(told)["rate"])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.churn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=int, default=1000, help="connections a second")
    parser.add_argument("--against", type=Path, help="another checkout, built")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        brokers = [Leveret(base / "leveret")]
        if options.against:
            brokers.append(Leveret(base / "before", tree=options.against.resolve(), name="before"))
        rows: dict[str, list[tuple[float, float, float]]] = {one.name: [] for one in brokers}
        try:
            for broker in brokers:
                broker.start()
            for _ in range(options.rounds):
                for broker in brokers:
                    alone = probe(broker.port, options.seconds)
                    found = meanwhile(broker.port, options.seconds, options.rate)
                    rows[broker.name].append((alone, *found))
        finally:
            for broker in brokers:
                broker.stop()
    for name, measured in rows.items():
        alone, beside, rate = (statistics.median(row[at] for row in measured) for at in range(3))
        ratios = sorted(row[1] / row[0] for row in measured)
        print(
            f"{name:10} p99 alone {alone:.2f} ms   beside {rate:,.0f} connections a second"
            f" {beside:.2f} ms   ratio {statistics.median(ratios):.2f}"
            f" ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
