"""`python -m tests.bench.delayed`: memory of delayed messages that wait, and a restart with them.

Persistent messages of 100 bytes with delays of 1 to 10 days in random order, with confirms, on one
durable exchange. Then kill -9, a restart until clients can connect, and the first delivery of a
message that was due meanwhile.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.bench import processes

BATCH = 5_000
DAY_MS = 86_400_000


def anonymous(broker: Appliance) -> int:
    """Anonymous resident bytes of the broker."""
    return processes.resident_bytes([broker.pids["broker"]], "RssAnon")


def read_bytes(broker: Appliance) -> int:
    """Bytes that the broker has read from files and sockets since it started."""
    lines = Path(f"/proc/{broker.pids['broker']}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def stored_bytes(broker: Appliance) -> int:
    """Bytes of the files in the data directory."""
    return sum(path.stat().st_size for path in broker.data_dir.rglob("*") if path.is_file())


def publish(client: Client, count: int) -> float:
    """Seconds that it took to publish so many and to have them confirmed."""
    chance = random.Random(1)
    body = b"x" * 100
    start = time.perf_counter()
    for first in range(1, count + 1, BATCH):
        last = min(first + BATCH, count + 1)
        client.send(
            b"".join(
                raw.publish(
                    1,
                    "later",
                    "key",
                    body,
                    headers={"x-delay": chance.randrange(DAY_MS, 10 * DAY_MS)},
                    delivery_mode=2,
                )
                for _ in range(first, last)
            )
        )
        client.expect_confirms(1, last - 1, first)
    return time.perf_counter() - start


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.delayed", description=__doc__)
    parser.add_argument("--count", type=int, default=2_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leveret-delayed-") as directory:
        broker = Appliance("broker", Path(directory)).start()
        with Client.open((broker.host, broker.amqp_port), timeout=60) as client:
            client.call(
                1,
                "exchange.declare",
                exchange="later",
                type="x-delayed-message",
                durable=True,
                arguments={"x-delayed-type": "fanout"},
            )
            client.call(1, "queue.declare", queue="later", durable=True)
            client.call(1, "queue.bind", queue="later", exchange="later")
            client.call(1, "confirm.select")
            publish(client, min(options.count, 50_000))
            base = anonymous(broker)
        with Client.open((broker.host, broker.amqp_port), timeout=60) as client:
            client.call(1, "confirm.select")
            seconds = publish(client, options.count)
            grown = anonymous(broker) - base
            client.publish(1, "later", "key", b"first", headers={"x-delay": 500}, delivery_mode=2)
            client.expect_confirms(1, options.count + 1, options.count + 1)
        print(
            f"{options.count:,} delayed messages: published and confirmed in {seconds:.1f} s, "
            f"memory +{grown / 1e6:.1f} MB ({grown / options.count:.2f} B each)"
        )
        stored = stored_bytes(broker)
        broker.kill()
        start = time.perf_counter()
        broker.start()
        ready = time.perf_counter() - start
        with Client.open((broker.host, broker.amqp_port), timeout=60) as client:
            client.call(1, "basic.consume", queue="later", no_ack=True)
            assert client.expect_message(channel=1).body == b"first"
            first = time.perf_counter() - start
        print(
            f"restart after kill -9: clients connect after {ready:.1f} s, the first due message "
            f"comes after {first:.1f} s, {read_bytes(broker) / 1e6:.0f} MB of "
            f"{stored / 1e6:.0f} MB on disk were read, memory "
            f"{anonymous(broker) / 1e6:.1f} MB (before: {base / 1e6:.1f} MB)"
        )
        broker.stop()
        start = time.perf_counter()
        broker.start()
        print(f"restart after a clean stop: {time.perf_counter() - start:.1f} s")
        broker.close()


if __name__ == "__main__":
    main()
