"""What the usage feed costs: `python -m tests.bench.feed`, by the round; with `--pairs 9`, by the
message; with `--messages 100000`, by the instructions of a message.

A broker of this process, whose queues take and give messages between two rounds. First every queue
and connection has changed at each round, which is the dearest case; then none has, and the queues
hold messages that stand still, which are written once a minute (the greatest of the rounds). The
time is that of the process's CPU clock, appending included; the share is of one core, with a round
every ten seconds.

By the message, exactly: `--messages 100000` counts the instructions that a broker executes for
these messages, and those of the one function that it calls for the feed meanwhile (valgrind's
callgrind; it takes minutes). No round falls into the count. Other programs change how many messages
come at a time, and so what a message takes, but not what the feed takes for each time.

By the message with all of it: two brokers of their own processes, one of them without the feed, are
put under the same load in turn, each time the other one first. Their queues hold messages, and one
of them in every queue is new in each pair, so that rounds that fall into a measurement have all
queues to write of.
"""

from __future__ import annotations

import argparse
import os
import runpy
import statistics
import subprocess
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
# In callgrind's list: the line of the whole program, and the function that notes latencies, which
# is all that a broker without the feed leaves out of a message's way.
WHOLE, OWN = "PROGRAM TOTALS", "DeclaredQueue_note_latency"
TIMED = ("S1", "S2", "S3", "S5")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queues", type=int, default=5_000)
    options.add_argument("--connections", type=int, default=500)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--pairs", type=int, default=0, help="measure by the message instead")
    options.add_argument("--seconds", type=float, default=1.0, help="of each measurement of a pair")
    options.add_argument("--messages", type=int, default=0, help="count instructions instead")
    asked = options.parse_args()
    if asked.messages:
        count_instructions(asked)
        return
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


def count_instructions(asked: argparse.Namespace) -> None:
    """Print the instructions of a message, and how many of them are the feed's."""
    with tempfile.TemporaryDirectory(prefix="leveret-feed-") as name:
        place = Path(name)
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={place / 'counts'}"]
        command = [*valgrind, sys.executable, str(REPOSITORY / "manage.py"), "broker"]
        # A round every hour: none falls into the count.
        broker = Leveret(place, ["--usage-interval", "3600"], command)
        broker.patience = 1200
        broker.start()
        try:
            for scenario in (one for one in SCENARIOS if one.name in TIMED):
                load = [*scenario.options, "--count", str(asked.messages)]
                generator.run(broker.port, load)  # takes the memory that the next one finds
                whole, own = (count / asked.messages for count in _counted(broker, place, load))
                print(
                    f"{scenario.name}: {whole:.0f} instructions a message, "
                    f"{own:.2f} of them for the feed: {100 * own / whole:.4f} %",
                    flush=True,
                )
        finally:
            broker.stop()


def _counted(broker: Leveret, place: Path, load: list[str]) -> tuple[int, int]:
    """The instructions of the broker while a load is put on it, and those of the feed's function
    with all that it calls."""
    assert broker.server is not None
    pid = str(broker.server.pid)
    subprocess.run(["callgrind_control", "-z", pid], check=True, stdout=subprocess.DEVNULL)
    generator.run(broker.port, load)
    subprocess.run(["callgrind_control", "-d", pid], check=True, stdout=subprocess.DEVNULL)
    newest = max(place.glob("counts.*"), key=lambda path: int(path.suffix[1:]))
    shown = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--auto=no", str(newest)]
    lines = subprocess.check_output(shown, text=True).splitlines()
    counts = {
        name: [int(line.split()[0].replace(",", "")) for line in lines if name in line]
        for name in (WHOLE, OWN)
    }
    return counts[WHOLE][0], sum(counts[OWN])


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
