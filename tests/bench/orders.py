"""`python -m tests.bench.orders`: a million orders through ten queues, and one of them found again.

A broker and its object store (a directory) on data of their own. The orders are published with
confirms twice: first without a history, then with one whose segments leave the disk. Then order
4711 is searched by its id, its life is shown, and it is replayed, by the commands that are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from broker.client.aio import Channel, Connection, connect
from broker.client.batch import Batch
from broker.client.properties import encode
from broker.client.uri import Endpoint
from tests.appliance import ROOT, Appliance
from tests.bench import processes

QUEUES = 10
WANTED = 4711
CONSUMED = f"orders.{WANTED % QUEUES}"
UNCONFIRMED = 20_000
AT_ONCE = 500
AUDIT = {"history": "full", "history-keys": "header:order_id", "history-events": True}
COLD = {"stream-tier": True, "stream-local-max-bytes": 8_000_000}
PATIENCE_S = 600.0


class Wrong(Exception):
    """A command did not show what it should; the text says what."""


class Cost(NamedTuple):
    """Orders a second, and microseconds of the broker's processor time for each."""

    rate: float
    cpu_us: float


class Session:
    """A broker with its tiers process, and `ctl` beside them."""

    def __init__(self, directory: Path) -> None:
        self.broker = Appliance("broker", directory, segment_size=4 << 20)
        self.tiers = Appliance("tiers", directory)

    def start(self) -> None:
        self.broker.start()
        self.tiers.start(wait=False)

    def close(self) -> None:
        self.tiers.close()
        self.broker.close()

    def run(self, line: str) -> str:
        """The output of a command of `ctl`. Raises Wrong if it fails."""
        command = [sys.executable, str(ROOT / "manage.py"), "ctl", *shlex.split(line)]
        environment = {**os.environ, "LEVERET_DATA_DIR": str(self.broker.data_dir)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise Wrong(f"ctl {line}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def ctl(self, line: str) -> str:
        """As `run`, printed."""
        began = time.monotonic()
        output = self.run(line)
        took = time.monotonic() - began
        print(f"$ ctl {line}    # {took:.1f} s\n{output}", flush=True)
        return output

    def rows(self, line: str) -> Any:
        """The same output for programs."""
        return json.loads(self.run(f"--quiet {line} --format json"))

    def awaited(self, line: str, is_there: Callable[[Any], bool]) -> Any:
        """The rows of a command when they are as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(rows := self.rows(line)):
            if time.monotonic() > deadline:
                raise Wrong(f"ctl {line} still shows {rows}")
            time.sleep(0.2)
        return rows

    # -- clients -----------------------------------------------------------------------------------

    async def connected(self) -> Connection:
        return await connect(Endpoint(port=self.broker.amqp_port))

    async def declare(self) -> None:
        async with await self.connected() as connection, connection.channel() as channel:
            for number in range(QUEUES):
                await channel.call("queue.declare", queue=f"orders.{number}", durable=True)

    async def publish(self, count: int) -> Cost:
        """All orders, each confirmed."""
        pids = list(self.broker.pids.values())
        async with await self.connected() as connection, connection.channel() as channel:
            await channel.select_confirms()
            used, began = processes.cpu_seconds(pids), time.monotonic()
            for number in range(count):
                properties = encode({"delivery_mode": 2, "headers": {"order_id": number}})
                key = b"orders.%d" % (number % QUEUES)
                channel.core.publish(b"", key, properties, b'{"order": %d}' % number)
                if number % AT_ONCE == AT_ONCE - 1:
                    connection.flush()
                    await channel.confirms_below(UNCONFIRMED)
            connection.flush()
            await channel.confirms_below(1)
            took = time.monotonic() - began
            return Cost(count / took, (processes.cpu_seconds(pids) - used) * 1e6 / count)

    async def purge(self) -> None:
        async with await self.connected() as connection, connection.channel() as channel:
            for number in range(QUEUES):
                await channel.call("queue.purge", queue=f"orders.{number}")

    async def consume(self, count: int) -> None:
        """Takes and acks all orders of one queue."""
        left = count
        done = asyncio.Event()

        def take(channel: Channel, batch: Batch) -> None:
            nonlocal left
            left -= len(batch)
            channel.core.ack(batch.last_tag, multiple=True)
            if left <= 0:
                done.set()

        async with await self.connected() as connection, connection.channel() as channel:
            await channel.consume(CONSUMED, take, prefetch=1000)
            await done.wait()
            connection.flush()


def expect(is_so: bool, text: str) -> None:
    if not is_so:
        raise Wrong(text)


def is_uploaded(figures: Any) -> bool:
    """Whether nothing waits for the object store."""
    return bool(figures["uploaded_segments"]) and not figures["pending_segments"]


def told(session: Session) -> None:
    """Order 4711 is searched, its life shown, and it is replayed."""
    before = session.rows("tiers")["fetched_blocks"]
    session.ctl(f"search_history 'order_id={WANTED}'")
    found = session.rows(f"search_history 'order_id={WANTED}'")
    expect(len(found) == 1, f"{len(found)} records of order {WANTED}")
    fetched = session.rows("tiers")["fetched_blocks"] - before
    expect(fetched > 0, "the object store was not asked for the record")
    session.ctl(f"message_life {found[0]['offset']}")
    life = session.rows(f"message_life {found[0]['offset']}")
    events = [row["event"] for row in life]
    expect(events == ["published", "delivered", "acknowledged"], f"its life is {events}")
    session.run("declare_queue again")
    session.ctl(f"replay_messages amq.history again --search order_id={WANTED}")
    session.awaited("list_transfers", lambda rows: rows[-1]["state"] == "finished")
    session.ctl("list_transfers")
    again = session.rows("list_queues name messages")
    count = next(row["messages"] for row in again if row["name"] == "again")
    expect(count == 1, f"the queue has {count} messages of the replay")


async def whole(session: Session, count: int) -> None:
    await session.declare()
    plain = await session.publish(count)
    await session.purge()
    session.ctl(f"set_policy orders '^orders' '{json.dumps(AUDIT)}'")
    session.ctl(f"set_policy cold '^amq.history$' '{json.dumps(COLD)}' --apply-to streams")
    kept = await session.publish(count)
    for name, cost in (("without a history", plain), ("with it", kept)):
        print(f"{count:,} orders {name}: {cost.rate:,.0f}/s, {cost.cpu_us:.2f} us of the broker")
    print(f"rate {kept.rate / plain.rate:.2f}, processor time {kept.cpu_us / plain.cpu_us:.2f} x\n")
    await session.consume(count // QUEUES)


def main() -> int:
    """Exit status 1 if a command did not show what it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.orders", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="orders (1,000,000)")
    parser.add_argument("--directory", type=Path, help="where data goes (a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orders-", dir=options.directory) as directory:
        session = Session(Path(directory))
        try:
            session.start()
            asyncio.run(whole(session, options.count))
            session.awaited("tiers", is_uploaded)
            session.ctl("tiers")
            told(session)
        except Wrong as error:
            print(f"wrong: {error}", file=sys.stderr)
            return 1
        finally:
            session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
