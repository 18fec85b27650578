"""`python -m tests.bench.idle`: CPU and memory of very many idle connections, beside the bare
system calls.

Connections with a channel come evenly over one interval of heartbeats, and each sends one in every
interval and gets one, as with a negotiated heartbeat of twice as long. The same is done with a
program in C (idle.c) that only receives and sends. `--against` measures another checkout in the
same rounds. Both ends of each connection are on this machine: how many can be open is limited by
the descriptors of a process.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import os
import resource
import select
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.amqp.raw import Client
from tests.bench import bare
from tests.bench.leveret import Leveret
from tests.bench.processes import thread_seconds

BEAT = b"\x08\0\0\0\0\0\0\xce"
INTERVAL_S = 30.0
SETTLING_S = INTERVAL_S + 2
"""After the last connection: neither its coming nor its first heartbeat is part of the figure."""


class Beating:
    """Open connections that send a heartbeat every `INTERVAL_S` and read what comes."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._due: list[tuple[float, int]] = []
        self._epoll = select.epoll()

    def add(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        heapq.heappush(self._due, (time.monotonic() + INTERVAL_S, len(self._sockets)))
        self._sockets.append(connected)
        self._epoll.register(connected, select.EPOLLIN)

    def until(self, end: float) -> None:
        """Goes on until then, monotonic seconds. Raises ConnectionError if one is closed."""
        while (now := time.monotonic()) < end:
            while self._due[0][0] <= now:
                due, number = heapq.heappop(self._due)
                self._sockets[number].send(BEAT)
                heapq.heappush(self._due, (due + INTERVAL_S, number))
            for descriptor, _ in self._epoll.poll(max(0.0, min(end, self._due[0][0]) - now)):
                if not os.read(descriptor, 65_536):
                    raise ConnectionError("a connection was closed")

    def close(self) -> None:
        for each in self._sockets:
            each.close()
        self._epoll.close()


@contextlib.contextmanager
def beating(count: int, connect: Callable[[], socket.socket]) -> Iterator[Beating]:
    """That many connections, which came evenly over one interval."""
    connections, begun = Beating(), time.monotonic()
    try:
        for number in range(1, count + 1):
            connections.add(connect())
            connections.until(begun + number * INTERVAL_S / count)
        yield connections
    finally:
        connections.close()


def resident(pids: list[int]) -> float:
    """MiB."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def of_broker(broker: Leveret, count: int, seconds: float) -> tuple[float, float]:
    """Percent of a core, and MiB over what it had before."""
    before, clients = resident(broker.pids()), []

    def connect() -> socket.socket:
        clients.append(Client.open(("127.0.0.1", broker.port), heartbeat=int(2 * INTERVAL_S)))
        return clients[-1].socket

    with beating(count, connect) as connections:
        connections.until(time.monotonic() + SETTLING_S)
        used, begun = thread_seconds(broker.pids()), time.monotonic()
        connections.until(begun + seconds)
        used = thread_seconds(broker.pids()) - used
        return 100 * used / (time.monotonic() - begun), resident(broker.pids()) - before


def of_system_calls(count: int, seconds: float) -> float:
    """Percent of a core."""
    with (
        bare.running("idle", str(count), str(INTERVAL_S), str(seconds)) as (server, port),
        beating(count, lambda: socket.create_connection(("127.0.0.1", port))) as connections,
    ):
        connections.until(time.monotonic() + seconds - 0.5)
        told, _ = server.communicate()
    return float(told)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.idle", description=__doc__)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    parser.add_argument("--connections", type=int, default=min(10_000, int(most * 0.43)))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--against", type=Path, help="another checkout, built")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    trees = {"Leveret": None} | ({"before": options.against.resolve()} if options.against else {})
    for _ in range(options.rounds):
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory() as directory:
                given = {} if tree is None else {"tree": tree, "name": name}
                broker = Leveret(Path(directory) / "data", **given)
                broker.start()
                try:
                    share, memory = of_broker(broker, options.connections, options.seconds)
                finally:
                    broker.stop()
            print(f"{name:10} {share:6.2f} % of a core   {memory:6.1f} MiB over base", flush=True)
        share = of_system_calls(options.connections, options.seconds)
        print(f"{'bare':10} {share:6.2f} % of a core", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
