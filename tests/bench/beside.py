"""`python -m tests.bench.beside`: what an AMQP client notices of statistics at 10,000 queues.

A probe publishes and receives a message every 2 ms. In turn, for some rounds: nothing beside it,
/metrics every second, and the largest page of metrics without a pause; 20 readers that take nothing
of the list of all queues; and definitions of 20,000 objects going out. The ratio is the median over
rounds of the probe's p99 and the one of nothing in the same round. Beside it the longest turn of
the broker's loop, by the processor time of its thread. Then what each page of metrics costs, and
definitions of 20,000 objects that come in.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.appliance import Appliance
from tests.bench.policies import Probe
from tests.bench.screens import processor_seconds
from tests.turns import TurnMeter

LOGIN = "Basic " + base64.b64encode(b"guest:guest").decode()
READERS = 20
FAMILIES = (
    "queue_coarse_metrics",
    "queue_consumer_count",
    "queue_metrics",
    "queue_delivery_metrics",
    "exchange_metrics",
)
PAGES = (
    "/metrics",
    "/metrics/per-object",
    *(f"/metrics/detailed?family={family}" for family in FAMILIES),
)


def fetch(url: str, body: bytes | None = None) -> int:
    """Octets of an answer."""
    asked = urllib.request.Request(url, body, {"Authorization": LOGIN})
    if body is not None:
        asked.add_header("Content-Type", "application/json")
    size = 0
    with urllib.request.urlopen(asked, timeout=120) as answer:
        while piece := answer.read(1 << 16):
            size += len(piece)
    return size


def definitions(queues: int, vhost: str = "/") -> bytes:
    """So many queues, each bound once."""
    names = [f"queue-{number:05}" for number in range(queues)]
    facts: dict[str, Any] = {"durable": True, "auto_delete": False, "arguments": {}}
    ends = {"source": "amq.direct", "destination_type": "queue", "arguments": {}}
    return json.dumps(
        {
            "vhosts": [{"name": vhost}],
            "permissions": [
                {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
            ],
            "queues": [{"name": name, "vhost": vhost, **facts} for name in names],
            "bindings": [
                {"destination": name, "routing_key": name, "vhost": vhost, **ends} for name in names
            ],
        }
    ).encode()


@contextlib.contextmanager
def other(*arguments: str) -> Iterator[None]:
    """A process that asks again and again; its interpreter has started when this begins."""
    command = [sys.executable, "-m", "tests.bench.beside", "--ask", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def ask(url: str, pause: str) -> None:
    """What the other process does."""
    print("begun", flush=True)
    while True:
        fetch(url)
        time.sleep(float(pause))


@contextlib.contextmanager
def slow_readers(appliance: Appliance, count: int = READERS) -> Iterator[None]:
    """Clients that ask for all queues and take the first octets only."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            slow = stack.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", appliance.http_port))
            head = f"GET /api/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: {LOGIN}\r\n\r\n"
            slow.sendall(head.encode())
        yield


def loads(appliance: Appliance) -> dict[str, Any]:
    """What there is beside the probe, by title."""
    metrics = f"http://127.0.0.1:{appliance.metrics_port}"
    api = f"http://127.0.0.1:{appliance.http_port}/api"
    return {
        "nothing": contextlib.nullcontext,
        "/metrics every second": lambda: other(f"{metrics}/metrics", "1"),
        "per-object without a pause": lambda: other(f"{metrics}/metrics/per-object", "0"),
        "20 slow readers": lambda: slow_readers(appliance),
        "definitions out": lambda: other(f"{api}/definitions", "0"),
    }


def run(options: argparse.Namespace, appliance: Appliance) -> None:
    meter = TurnMeter(appliance)
    appliance.start()
    fetch(f"http://127.0.0.1:{appliance.http_port}/api/definitions", definitions(options.queues))
    probe = Probe(appliance.amqp_port)
    probe.start()
    time.sleep(3)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(options.rounds):
        for title, load in loads(appliance).items():
            if options.only not in title and title != "nothing":
                continue
            with load():
                probe.taken()
                meter.forget()
                time.sleep(options.seconds)
                p50, p99, _ = probe.taken()
                found.setdefault(title, []).append((p50, p99, meter.of("broker").longest))
    base = [p99 for _, p99, _ in found["nothing"]]
    for title, rows in found.items():
        ratio = statistics.median(row[1] / one for row, one in zip(rows, base, strict=True))
        p50, p99 = (statistics.median(row[place] for row in rows) for place in (0, 1))
        longest = max(row[2] for row in rows)
        print(
            f"{title:28} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  {ratio:5.2f} x"
            f"   longest turn {longest:5.2f} ms",
            flush=True,
        )
    probe.over.set()
    probe.join()
    scrapes(appliance, meter)
    definitions_in(appliance, meter)


def definitions_in(appliance: Appliance, meter: TurnMeter) -> None:
    """One import of 20,000 objects, and one export of as many."""
    pid, url = appliance.pids["broker"], f"http://127.0.0.1:{appliance.http_port}/api/definitions"
    for title, where, body in (
        ("definitions in", url, definitions(10_000, "imported")),
        ("definitions out", f"{url}/imported", None),
    ):
        meter.forget()
        before, began = processor_seconds(pid), time.perf_counter()
        fetch(where, body)
        seconds = time.perf_counter() - began
        spent = (processor_seconds(pid) - before) * 1000
        print(
            f"{title:28} {seconds * 1000:7.0f} ms   broker {spent:7.1f} ms"
            f"   longest turn {meter.of('broker').longest:5.2f} ms",
            flush=True,
        )


def scrapes(appliance: Appliance, meter: TurnMeter) -> None:
    """What one look at each page costs: the least of five."""
    pid = appliance.pids["broker"]
    for page in PAGES:
        spent, size = [], 0
        meter.forget()
        for _ in range(5):
            before = processor_seconds(pid)
            size = fetch(f"http://127.0.0.1:{appliance.metrics_port}{page}")
            spent.append((processor_seconds(pid) - before) * 1000)
        print(
            f"{page:56} broker {min(spent):7.1f} ms  {size:>10,} octets"
            f"   longest turn {meter.of('broker').longest:5.2f} ms",
            flush=True,
        )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.beside", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each load in a round")
    parser.add_argument("--only", default="", help="loads with this in their title")
    parser.add_argument("--ask", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.ask:
        ask(*options.ask)
    with tempfile.TemporaryDirectory() as directory:
        appliance = Appliance("serve", Path(directory))
        try:
            run(options, appliance)
        finally:
            appliance.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
