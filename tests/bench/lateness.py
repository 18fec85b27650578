"""`python -m tests.bench.lateness`: how late a message expires in an idle broker, and that none
expires early (rows L1 to L3).

Messages are published one by one at uneven times. What expires is dead-lettered to a queue that is
consumed from, so lateness is the time from publish to receipt less the TTL: it has both ways over
the socket in it, which the row L0, without any TTL, shows alone.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.bench.leveret import Leveret

TTL_MS = 300
BUDGET_MS = 10.0
DEAD = "late"
LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
ROWS: tuple[tuple[str, str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("L0", "no TTL: publish to receipt", DEAD, {}, {}),
    ("L1", "queue TTL", "late.queue", {**LETTERS, "x-message-ttl": TTL_MS}, {}),
    ("L2", "message TTL", "late.message", LETTERS, {"expiration": str(TTL_MS)}),
    ("L3", "policy TTL", "late.policy", LETTERS, {}),
)


class Publisher(threading.Thread):
    """Sends `count` messages with their time in ns, on average every `pause` seconds."""

    def __init__(
        self, client: raw.Client, queue: str, count: int, pause: float, values: dict[str, Any]
    ) -> None:
        super().__init__(daemon=True)
        self.client, self.queue, self.count, self.pause = client, queue, count, pause
        self.values = values

    def run(self) -> None:
        chance = random.Random(4711)
        for _ in range(self.count):
            time.sleep(chance.uniform(0, 2 * self.pause))
            body = struct.pack(">q", time.monotonic_ns())
            self.client.send(raw.publish(1, "", self.queue, body, **self.values))


def lateness(
    broker: Leveret, queue: str, ttl: int, count: int, pause: float, values: dict[str, Any]
) -> list[float]:
    """Milliseconds from when each message was due to its receipt, sorted."""
    address = ("127.0.0.1", broker.port)
    with raw.Client.open(address) as source, raw.Client.open(address) as sink:
        sink.call(1, "basic.consume", queue=DEAD, no_ack=True)
        publisher = Publisher(source, queue, count, pause, values)
        publisher.start()
        found = []
        for _ in range(count):
            body = sink.expect_message(channel=1).body
            found.append((time.monotonic_ns() - struct.unpack(">q", body)[0]) / 1e6 - ttl)
        publisher.join()
    return sorted(found)


def declare(broker: Leveret) -> None:
    """The queues of the rows, and the policy of one of them."""
    with raw.Client.open(("127.0.0.1", broker.port)) as client:
        for _, _, queue, arguments, _ in ROWS:
            client.call(1, "queue.declare", queue=queue, arguments=arguments)

    async def govern() -> None:
        door = BrokerClient(broker.directory / "data" / "control.sock")
        try:
            definition = {"message-ttl": TTL_MS}
            args = {"pattern": "^late[.]policy$", "definition": definition, "apply_to": "queues"}
            await door.call("policy.put", vhost="/", name="late", **args)
        finally:
            await door.close()

    asyncio.run(govern())


def main() -> int:
    """Status 1 if a message expired early."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lateness")
    parser.add_argument("--count", type=int, default=1000, help="messages of each row (1000)")
    parser.add_argument("--pause", type=float, default=0.01, help="mean seconds between two (0.01)")
    parser.add_argument("--against", type=Path, help="another checkout, built: the code before")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="leveret-bench-"))
    brokers = [Leveret(base / "leveret")]
    if options.against:
        brokers.append(Leveret(base / "before", tree=options.against.resolve(), name="before"))
    early = 0
    try:
        for broker in brokers:
            broker.start()
            declare(broker)
        print(f"commit {brokers[0].version}; TTL {TTL_MS} ms, {options.count} messages a row")
        print(f"{'':36}{'p50 ms':>9}{'p99 ms':>9}{'worst':>9}{'early':>7}")
        for row, text, queue, _, values in ROWS:
            for broker in brokers:
                ttl = 0 if queue == DEAD else TTL_MS
                late = lateness(broker, queue, ttl, options.count, options.pause, values)
                p99 = late[min(len(late) - 1, len(late) * 99 // 100)]
                too_early = sum(each < 0 for each in late)
                early += too_early if broker is brokers[0] else 0
                verdict = f"  {'<=' if p99 <= BUDGET_MS else '> '} {BUDGET_MS:g}" if ttl else ""
                print(
                    f"{row} {text:27}{broker.name:>8}{statistics.median(late):9.2f}{p99:9.2f}"
                    f"{late[-1]:9.2f}{too_early:7}{verdict}",
                    flush=True,
                )
    finally:
        for broker in brokers:
            broker.stop()
        shutil.rmtree(base, ignore_errors=True)
    return 1 if early else 0


if __name__ == "__main__":
    sys.exit(main())
