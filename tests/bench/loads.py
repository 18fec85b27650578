"""`python -m tests.bench.loads --against DIR`: loads of other shapes than the scenarios', beside
another checkout.

Where the broker waits so that packets gather, clients that wait in turn may lose more than is
gained, and for some time only. So the worst of the rounds is shown as well as the median.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.bench import generator
from tests.bench.leveret import running

WAITING = "--persistent --flush --body 64 --ack 1"
LONG = "--persistent --ack 100 --prefetch 1000"
LOADS = {
    "1 x window 10": f"{WAITING} --confirm 10 --prefetch 10",
    "8 x window 10": f"{WAITING} --confirm 10 --prefetch 10 --publishers 8",
    "8 x window 10, 1 KiB": f"{WAITING} --confirm 10 --prefetch 10 --publishers 8 --body 1024",
    "8 x window 10, transient": "--flush --body 64 --ack 1 --confirm 10 --prefetch 10"
    " --publishers 8",
    "32 x window 5": f"{WAITING} --confirm 5 --prefetch 5 --publishers 32",
    "4 x window 100": "--persistent --body 64 --ack 10 --confirm 100 --prefetch 100 --publishers 4",
    "8 x window 100, flushed": f"{WAITING} --ack 10 --confirm 100 --prefetch 100 --publishers 8",
    "1 x window 1,000, flushed, 1 KiB": f"{LONG} --confirm 1000 --body 1024 --flush",
    "1 x window 5,000, flushed, 384 B": f"{LONG} --confirm 5000 --body 384 --flush",
    "1 x window 1,000, 4 KiB": f"{LONG} --confirm 1000 --body 4096",
    "1 x 50 in flight": "--flush --body 64 --in-flight 50",
    "1 x 200 in flight, 100 KB": "--body 100000 --in-flight 200",
    "1 x 200 in flight, flushed, 100 KB": "--body 100000 --in-flight 200 --flush",
    "1 x 20 in flight, 1 MB": "--body 1000000 --in-flight 20",
    "4 x 200 in flight": "--flush --body 256 --in-flight 200 --publishers 4",
    "8 x 1,000 in flight": "--flush --body 16 --in-flight 1000 --publishers 8",
    "2 x 50,000 in flight": "--flush --body 16 --in-flight 50000 --publishers 2",
    "1 x 20,000 in flight, 512 B": "--flush --body 512 --in-flight 20000",
    "8 x 20,000 in flight": "--flush --body 16 --in-flight 20000 --publishers 8",
    "50,000/s": f"{WAITING} --ack 10 --confirm 100 --prefetch 1000 --rate 50000",
    "50,000/s, transient": "--flush --body 64 --in-flight 10000 --rate 50000",
}
"""The generator's options. As many queues and consumers as publishers."""


def options_of(load: str) -> list[str]:
    options = load.split()
    if "--publishers" in options:
        count = options[options.index("--publishers") + 1]
        options += ["--queues", count, "--consumers", count]
    return options


def told(name: str, results: list[dict[str, Any]]) -> str:
    rates = [float(each["rate"]) for each in results]
    costs = [float(each["cpu_us_per_message"]) for each in results]
    late = [float(each["latency_us"]["p99"]) / 1000 for each in results]
    return (
        f"{name:10} {statistics.median(rates):>9,.0f}/s (least {min(rates):>9,.0f})"
        f"  {statistics.median(costs):7.2f} us (most {max(costs):7.2f})"
        f"  p99 {statistics.median(late):9.2f} ms (most {max(late):9.2f})"
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.loads", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--against", type=Path, help="another checkout, built")
    parser.add_argument("--only", default="", help="loads in whose names these words are")
    options = parser.parse_args(arguments)
    length = ["--warmup", "0.25", "--duration", str(options.seconds)]
    with running(options.against) as brokers:
        for name, load in LOADS.items():
            if not all(word in name for word in options.only.split()):
                continue
            print(name)
            results: dict[str, list[dict[str, Any]]] = {each.name: [] for each in brokers}
            for _ in range(options.rounds):
                for broker in brokers:
                    found = generator.run(broker.port, options_of(load) + length, broker.pids())
                    results[broker.name].append(found)
            for broker in brokers:
                print("  " + told(broker.name, results[broker.name]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
