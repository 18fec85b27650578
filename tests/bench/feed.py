"""What a round of the usage feed costs: `python -m tests.bench.feed`.

A broker of this process, whose queues take and give messages between two rounds. First every queue
and connection has changed at each round, which is the dearest case; then none has, and the queues
hold messages that stand still, which are written once a minute (the greatest of the rounds). The
time is that of the process's CPU clock, appending included; the share is of one core, with a round
every ten seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from broker.features.usage.feed import Feed
from broker.kernel import clock
from broker.server.app import Broker
from broker.settings.config import Config
from tests.reports.feeds import MadeUpConnection

INTERVAL_MS = 10_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queues", type=int, default=5_000)
    options.add_argument("--connections", type=int, default=500)
    options.add_argument("--rounds", type=int, default=7)
    asked = options.parse_args()
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


if __name__ == "__main__":
    main()
