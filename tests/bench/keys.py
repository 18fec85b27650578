"""`python -m tests.bench.keys [--against DIR]`: publishes to very many routing keys in turn.

A client sends messages of 16 octets, made beforehand, to a direct exchange at which a queue of
1,000 messages at most is bound with each key. Printed are the median rate and the broker's CPU a
message; `--against` measures another checkout in the same rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from tests.amqp.raw import Client
from tests.bench.client import publish
from tests.bench.leveret import Leveret, running
from tests.bench.processes import thread_seconds

KEYS = (1, 10, 1_000, 2_000, 4_000, 20_000)
MESSAGES = 100_000
TIMES = 4
BODY = b"x" * 16


def fence(client: Client, queue: str) -> None:
    """Returns when the broker has carried out all that was sent."""
    client.call(1, "queue.declare", queue=queue, passive=True)


def measured(broker: Leveret, keys: int) -> tuple[float, float]:
    """Messages a second, and microseconds of CPU for each."""
    queue, exchange = f"keys-{keys}", f"to-{keys}"
    with Client.open(("127.0.0.1", broker.port)) as client:
        client.call(1, "exchange.declare", exchange=exchange, type="direct")
        client.call(1, "queue.declare", queue=queue, arguments={"x-max-length": 1000})
        for key in range(keys):
            client.call(1, "queue.bind", queue=queue, exchange=exchange, routing_key=f"key.{key}")
        data = b"".join(
            publish(exchange, f"key.{number % keys}", BODY, False) for number in range(MESSAGES)
        )
        client.send(data)
        fence(client, queue)
        used, begun = thread_seconds(broker.pids()), time.monotonic()
        for _ in range(TIMES):
            client.send(data)
        fence(client, queue)
        took = time.monotonic() - begun
        used = thread_seconds(broker.pids()) - used
        client.call(1, "queue.delete", queue=queue)
        client.call(1, "exchange.delete", exchange=exchange)
    return TIMES * MESSAGES / took, used / (TIMES * MESSAGES) * 1e6


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.keys", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, built")
    options = parser.parse_args(arguments)
    with running(options.against) as brokers:
        for keys in KEYS:
            results: dict[str, list[tuple[float, float]]] = {each.name: [] for each in brokers}
            for _ in range(options.rounds):
                for broker in brokers:
                    results[broker.name].append(measured(broker, keys))
            for name, found in results.items():
                rates, costs = zip(*found, strict=True)
                print(
                    f"{keys:>6,} keys  {name:8} {statistics.median(rates):>10,.0f}/s "
                    f"(least {min(rates):>10,.0f})  {statistics.median(costs):5.2f} us "
                    f"({min(costs):.2f} to {max(costs):.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
