"""`python -m tests.bench.backlog [--against DIR]`: consumes a backlog right behind its publishing.

A publisher with a window of 1,000 fills a queue that has no consumer with persistent messages; when
all are confirmed, a consumer takes them. Printed are the median rates, and the broker's CPU a
message; `--against` measures another checkout in the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from tests.bench import generator
from tests.bench.leveret import Leveret, running

SIZES = ((1024, 200_000), (4096, 60_000), (20_000, 12_000))
"""Octets of a message, and how many there are."""
FILL = ("--consumers", "0", "--persistent", "--confirm", "1000")
DRAIN = ("--publishers", "0", "--persistent", "--ack", "100", "--prefetch", "1000")


def measured(broker: Leveret, name: str, size: int, count: int) -> tuple[float, ...]:
    """Rate and microseconds of CPU of publishing, then of consuming."""
    load = ("--name", name, "--keep", "--body", str(size), "--count", str(count))
    found: list[float] = []
    for options in (FILL, DRAIN):
        result = generator.run(broker.port, [*load, *options, "--duration", "60"], broker.pids())
        found += [result["rate"], result["cpu_us_per_message"]]
    return tuple(found)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.backlog", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, built")
    options = parser.parse_args(arguments)
    with running(options.against) as brokers:
        for size, count in SIZES:
            rows: dict[str, list[tuple[float, ...]]] = {each.name: [] for each in brokers}
            for number in range(options.rounds):
                for broker in brokers:
                    name = f"backlog-{size}-{number}"
                    rows[broker.name].append(measured(broker, name, size, count))
            for name, found in rows.items():
                published, publishing, consumed, consuming = zip(*found, strict=True)
                print(
                    f"{size:>6,} octets  {name:8} published {statistics.median(published):>9,.0f}/s"
                    f" {statistics.median(publishing):5.2f} us  consumed"
                    f" {statistics.median(consumed):>9,.0f}/s (least {min(consumed):>9,.0f})"
                    f" {statistics.median(consuming):5.2f} us",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
