"""`python -m tests.bench.clients`: what a message of other people's clients costs the broker,
beside one of the generator at the same rate.

pika sends each publish for itself, and a client of our own writes each of its three frames for
itself. How many messages come is up to the client; then the generator flushes as many a second.
Both are delivered to one consumer of the generator without acks. The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pika

from tests.amqp import raw
from tests.bench import generator
from tests.bench.leveret import Leveret
from tests.bench.processes import cpu_seconds

BODY = b"sixteen bytes ..."[:16]
BEGUN_S = 0.5
"""The load runs for so long before the broker's CPU counts."""
ENDLESS = str(10**12)


def by_pika(port: int, queue: str) -> Callable[[], None]:
    """Publishes a message at each call."""
    parameters = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/%2F?heartbeat=0")
    channel = pika.BlockingConnection(parameters).channel()
    return lambda: channel.basic_publish("", queue, BODY)


def by_frames(port: int, queue: str) -> Callable[[], None]:
    """The same, with a write for each frame."""
    client = raw.Client.open(("127.0.0.1", port))
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    whole = raw.publish(1, "", queue, BODY)
    body = len(BODY) + 8
    header = len(raw.publish(1, "", queue, b"")) - len(
        raw.method(1, "basic.publish", exchange="", routing_key=queue)
    )
    frames = [whole[: -header - body], whole[-header - body : -body], whole[-body:]]

    def publish() -> None:
        for frame in frames:
            client.socket.sendall(frame)

    return publish


CLIENTS = {"pika": by_pika, "a frame a write": by_frames}


def publish(name: str, port: int, queue: str, seconds: float) -> None:
    """In a process of its own: prints how many a second it were."""
    call = CLIENTS[name](port, queue)
    began = time.monotonic()
    count = 0
    while time.monotonic() < began + seconds:
        for _ in range(100):
            call()
        count += 100
    print(count / (time.monotonic() - began), flush=True)


def load(port: int, queue: str, *options: str) -> list[str]:
    """The generator, on a queue that it leaves as it is."""
    return [str(generator.build()), "--port", str(port), "--name", queue, "--keep", *options]


def measured(broker: Leveret, seconds: float, command: list[str]) -> tuple[float, float]:
    """Messages a second that a publishing program prints, and the broker's µs for each."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as publisher:
        time.sleep(BEGUN_S)
        before, began = cpu_seconds(broker.pids()), time.monotonic()
        time.sleep(seconds)
        spent, took = cpu_seconds(broker.pids()) - before, time.monotonic() - began
        told, _ = publisher.communicate()
    if publisher.returncode:
        raise generator.GeneratorFailed(told)
    rate = float(generator.read(told)["rate"]) if told.startswith("{") else float(told)
    return rate, spent / took / rate * 1e6


def compare(broker: Leveret, name: str, seconds: float) -> tuple[float, float, float]:
    """Messages a second of this client, the broker's µs for each, and those of the generator's at
    that rate."""
    queue = name.replace(" ", "-")
    created = load(broker.port, queue, "--consumers", "0", "--count", "1")
    subprocess.run(created, check=True, stdout=subprocess.DEVNULL)
    consuming = load(broker.port, queue, "--publishers", "0", "--count", ENDLESS)
    with subprocess.Popen(consuming, stdout=subprocess.DEVNULL) as consumer:
        try:
            whole = str(seconds + 2 * BEGUN_S)
            own = [sys.executable, "-m", "tests.bench.clients", "--publish", name]
            own += ["--port", str(broker.port), "--queue", f"{queue}.0", "--seconds", whole]
            rate, cost = measured(broker, seconds, own)
            same = ["--consumers", "0", "--flush", "--rate", str(int(rate)), "--duration", whole]
            _, of_generator = measured(broker, seconds, load(broker.port, queue, *same))
        finally:
            consumer.terminate()
    return rate, cost, of_generator


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--publish", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--queue", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.publish:
        publish(options.publish, options.port, options.queue, options.seconds)
        return
    with tempfile.TemporaryDirectory() as directory:
        broker = Leveret(Path(directory) / "leveret")
        broker.start()
        try:
            for name in CLIENTS:
                rows = [compare(broker, name, options.seconds) for _ in range(options.rounds)]
                rate, cost, same = (statistics.median(row[at] for row in rows) for at in range(3))
                ratios = sorted(row[1] / row[2] for row in rows)
                print(
                    f"{name:16} {rate:>8,.0f}/s  {cost:6.1f} us  generator {same:6.1f} us"
                    f"  ratio {statistics.median(ratios):.2f}"
                    f" ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                    flush=True,
                )
        finally:
            broker.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
