"""`python -m tests.bench.queues`: what 10,000 queues cost of which 1,000 are used.

A client publishes 1,000 messages a second, one each millisecond, to the used queues in turn, and
gets them from consumers without acks. In turn, for some rounds: all to the only queue, which is the
traffic's own cost; to 1,000 queues that are all there are; to 1,000 of 10,000. Printed are the
median of each, and of what it takes more than the first in the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.client import Client, publish
from tests.bench.leveret import Leveret
from tests.bench.processes import thread_seconds

EVERY_S = 0.001
SETTLING_S = 6.0
"""Until what was declared is in the statistics, and their windows are filled."""
BODY = b"x" * 64


class Load:
    """A broker with so many queues, and a client of the first `used` of them."""

    def __init__(self, broker: Leveret, queues: int, used: int) -> None:
        self.name = f"{used:,} of {queues:,}"
        self.broker = broker
        self._client = Client(broker.port)
        for number in range(queues):
            self._client.declare_queue(f"q{number}")
        for number in range(used):
            self._client.consume(f"q{number}", f"c{number}", no_ack=True)
        self._publishes = [publish("", f"q{number}", BODY, False) for number in range(used)]
        self._next = 0
        self._client.events.clear()

    def share(self, seconds: float, idle: bool) -> float:
        """Percent of a core that the broker takes. Raises RuntimeError if it loses a message."""
        sent = got = 0
        used, begun = thread_seconds(self.broker.pids()), time.monotonic()
        while (now := time.monotonic() - begun) < seconds:
            if not idle and sent * EVERY_S <= now:
                self._client.send(self._publishes[self._next])
                self._next = (self._next + 1) % len(self._publishes)
                sent += 1
            # What came before the next one is due.
            self._client.receive(max(0.0, min(sent * EVERY_S, seconds) - now))
            got += self._taken()
        used = thread_seconds(self.broker.pids()) - used
        took = time.monotonic() - begun
        while got < sent and self._client.receive(5.0):
            got += self._taken()
        if got != sent:
            raise RuntimeError(f"{self.name}: {sent} messages were published, {got} came")
        return 100 * used / took

    def _taken(self) -> int:
        count = len(self._client.events)
        self._client.events.clear()
        return count


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queues", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--used", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--idle", action="store_true", help="without traffic")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        loads = []
        for queues, used in ((1, 1), (options.used,) * 2, (options.queues, options.used)):
            broker = Leveret(Path(directory) / f"{queues}-{used}")
            broker.start()
            stack.callback(broker.stop)
            loads.append(Load(broker, queues, used))
        time.sleep(SETTLING_S)
        shares: dict[str, list[float]] = {load.name: [] for load in loads}
        for _ in range(options.rounds):
            for load in loads:
                shares[load.name].append(load.share(options.seconds, options.idle))
    alone = shares[loads[0].name]
    for name, found in shares.items():
        more = [share - own for share, own in zip(found, alone, strict=True)]
        print(
            f"{name:>16} queues {statistics.median(found):6.2f} % of a core "
            f"({min(found):.2f} to {max(found):.2f}), {statistics.median(more):+.2f} "
            f"({min(more):+.2f} to {max(more):+.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
