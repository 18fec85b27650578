"""What the usage feed costs: `python -m tests.bench.feed`, by the round; with `--pairs 9`, by the
message.

A broker of this process, whose queues take and give messages between two rounds. First every queue
and connection has changed at each round, which is the dearest case; then none has, and the queues
hold messages that stand still, which are written once a minute (the greatest of the rounds). The
time is that of the process's CPU clock, appending included; the share is of one core, with a round
every ten seconds.

By the message: two brokers of their own processes, one of them without the feed, are put under the
same load in turn, each time the other one first. Their queues hold messages, and one of them in
every queue is new in each pair, so that rounds that fall into a measurement have all queues to
write of.
"""

from __future__ import annotations

import argparse
import os
import runpy
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from broker import features
from broker.features.usage.feed import Feed
from broker.kernel import clock
from broker.server.app import Broker
from broker.settings.config import Config
from tests.bench import generator
from tests.bench.leveret import REPOSITORY, Leveret
from tests.bench.scenarios import SCENARIOS
from tests.reports.feeds import MadeUpConnection

INTERVAL_MS = 10_000
WITHOUT = "without"
TIMED = ("S1", "S2", "S3", "S5")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queues", type=int, default=5_000)
    options.add_argument("--connections", type=int, default=500)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--pairs", type=int, default=0, help="measure by the message instead")
    options.add_argument("--seconds", type=float, default=1.0, help="of each measurement of a pair")
    asked = options.parse_args()
    if asked.pairs:
        measure_pairs(asked)
        return
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Config(data_dir=Path(directory)))
        broker.recover()
        measure(broker, asked)


def measure(broker: Broker, asked: argparse.Namespace) -> None:
    vhost = broker.vhosts["/"]
    queues = [vhost.declare_queue(f"queue.number.{number}")[0] for number in range(asked.queues)]
    connections = [made_up(number) for number in range(asked.connections)]
    broker.connections = {each.id: each for each in connections}
    (feed,) = (each for each in broker.features if isinstance(each, Feed))
    print(f"{asked.queues} queues, {asked.connections} connections, {asked.rounds} rounds each")
    now_ms = clock.now()
    for name, change in (("all changed", True), ("none changed", False)):
        rounds = []
        for _ in range(asked.rounds):
            now_ms += INTERVAL_MS
            rounds.append(one_round(feed, now_ms, queues, connections if change else [], change))
        report(name, rounds)


def made_up(number: int) -> Any:
    return MadeUpConnection(
        id=number,
        name=f"127.0.0.1:{number} -> 127.0.0.1:5672",
        user="anna",
        vhost="/",
        client="pika",
        client_version="1",
        connected_at_ms=clock.now(),
    )


class Getter:
    """Takes a message and throws it away."""

    no_ack = True

    def message(self, *_: Any) -> None: ...

    def empty(self, *_: Any) -> None: ...


def one_round(
    feed: Feed, now_ms: int, queues: list[Any], connections: list[Any], change: bool
) -> tuple[float, float, int]:
    """CPU of a round (s), of its longest step without the disk (s), and the steps."""
    if change:
        for queue in queues:
            for _ in range(3):
                queue.put(b"", b"key", b"\x00\x00", b"x" * 100, False)
            queue.get(Getter())
        for connection in connections:
            connection.use["publish"] += 1
    steps = feed.tick(now_ms)
    longest = 0.0
    count = 0
    began = time.process_time()
    assert steps is not None
    while True:
        before = time.thread_time()
        try:
            step = next(steps)
        except StopIteration:
            break
        longest = max(longest, time.thread_time() - before)
        count += 1
        if step is not None:
            step()
    return time.process_time() - began, longest, count


def report(name: str, rounds: list[tuple[float, float, int]]) -> None:
    cpu = sorted(each[0] for each in rounds)
    longest = sorted(each[1] for each in rounds)
    middle = len(rounds) // 2
    print(
        f"{name}: {cpu[middle] * 1000:.1f} ms of CPU a round (greatest {cpu[-1] * 1000:.1f}), "
        f"{cpu[middle] * 10:.3f} % of a core at a round every 10 s; "
        f"{rounds[middle][2]} steps, the longest {longest[middle] * 1000:.2f} ms"
    )


def measure_pairs(asked: argparse.Namespace) -> None:
    """Print the CPU of a message with the feed as a part of that without it."""
    scenarios = [one for one in SCENARIOS if one.name in TIMED]
    everywhere = ["--fanout", str(asked.queues), "--name", "held", "--consumers", "0"]
    ratios: dict[str, list[float]] = {one.name: [] for one in scenarios}
    with tempfile.TemporaryDirectory(prefix="leveret-feed-") as name:
        brokers = [
            Leveret(Path(name) / "with"),
            Leveret(Path(name) / "without", [], [*_without(), "broker"]),
        ]
        try:
            for broker in brokers:
                broker.start()
            for pair in range(asked.pairs):
                for scenario in scenarios:
                    cpu = {}
                    for broker in brokers if pair % 2 else reversed(brokers):
                        generator.run(broker.port, [*everywhere, "--keep", "--count", "1"])
                        seconds = ("--warmup", "0.2", "--duration", str(asked.seconds))
                        load = [*scenario.options, *seconds]
                        result = generator.run(broker.port, load, broker.pids())
                        cpu[broker.directory.name] = result["cpu_us_per_message"]
                    ratios[scenario.name].append(cpu["with"] / cpu[WITHOUT])
        finally:
            for broker in brokers:
                broker.stop()
    for scenario in scenarios:
        found = sorted(ratios[scenario.name])
        middle = statistics.median(found)
        print(f"{scenario.name}: {middle:.3f} of the CPU without ({found[0]:.3f}–{found[-1]:.3f})")


def _without() -> list[str]:
    """The program whose broker has no feed."""
    return [sys.executable, "-m", "tests.bench.feed", WITHOUT]


def run_without() -> None:
    """`manage.py` with the arguments that follow, without the feed."""
    features.NAMES = tuple(name for name in features.NAMES if name != "usage")
    manage = REPOSITORY / "manage.py"
    sys.argv = [str(manage), *sys.argv[2:]]
    os.chdir(REPOSITORY)
    runpy.run_path(str(manage), run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == [WITHOUT]:
        run_without()
    else:
        main()
