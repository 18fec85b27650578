"""Operators at work under load: `python -m tests.crash.storm --seconds 60 --seed 1`.

Queues of all types are published to and consumed from, and at the same time purged, deleted and
declared again; vhosts, users, permissions and policies come and go; transactions commit and roll
back; connections are cut. A client that only wants its own small queue says how long the longest
turn was. Beside it the publishers and consumers of `tests.crash.loop` keep journals: the broker has
to live, and what it confirmed to them has to be there after it was killed in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
from pika.exceptions import AMQPError

from management.broker_client import BrokerClient, BrokerError
from tests.bench import processes
from tests.bench.leveret import Leveret
from tests.crash.checker import Verdict
from tests.crash.loop import CONSUMED, Crash

INDEXES = ("ram", "leveldb")
SMALL = {
    "segment_size": "1MiB",
    "embed_below": "64",
    "body_file_size": "4MiB",
    "memory_high_watermark": "6GiB",
}
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {},
    "prio": {"x-max-priority": 5},
    "short": {"x-max-length": 3000},
    "letters": {"x-dead-letter-exchange": "letters", "x-message-ttl": 2000},
    "dead": {},
    "pair": {},
    "stream": {"x-queue-type": "stream", "x-max-length-bytes": 20_000_000},
    "quorum": {"x-queue-type": "quorum"},
}
LETTERS = ("dead", "pair")
POLICIES: list[dict[str, Any]] = [
    {"max-length": 500},
    {"message-ttl": 100},
    {"max-length-bytes": 2_000_000, "overflow": "reject-publish"},
    {"dead-letter-exchange": "letters", "max-length": 100},
]
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
DURABLE = pika.BasicProperties(delivery_mode=2)
MIB = 1 << 20


@dataclass
class Storm:
    """One storm on one broker, whose data directory is empty. `go` is called once."""

    broker: Leveret
    seconds: float
    seed: int
    worst: dict[str, float] = field(default_factory=dict)
    """What the operator did -> the longest that the probe waited meanwhile, seconds."""
    counts: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    """Bytes of anonymous memory."""
    trouble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.over = threading.Event()
        self.now = "nothing"

    def go(self) -> Verdict:
        """The storm, a kill, and what the journals say."""
        crash = Crash(self.broker, self.broker.directory / "journals", self.seed, self.seed)
        crash.prepare()
        with_channel(self.broker.port, declare)
        load = crash.load(publishers=1, consumed=CONSUMED[:2])
        threads = [
            threading.Thread(target=self._safely, args=(work,), daemon=True)
            for work in [self._publish] * 2 + [self._consume] * 2 + [self._probe, self._watch]
        ]
        for thread in threads:
            thread.start()
        ending = threading.Timer(self.seconds, self.over.set)
        ending.start()
        asyncio.run(self._operate())
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        ending.cancel()
        assert self.broker.server is not None
        if self.broker.server.poll() is not None:
            self.trouble.append(f"the broker ended with {self.broker.server.returncode}")
        self.broker.kill()
        crash.collect(*load)
        crash.log = self.broker.directory / "output"
        self.broker.start()
        crash.drain()
        crash.read_log()
        return crash.checker.drained()

    def _safely(self, work: Callable[[random.Random], None]) -> None:
        """Does something again and again. What an operator takes away, clients are told of."""
        chance = random.Random(self.random.random())
        while not self.over.is_set():
            try:
                work(chance)
            except (AMQPError, OSError) as error:
                self._refused(work.__name__, error)
                time.sleep(0.05)
            except Exception as error:
                self.trouble.append(f"{work.__name__[1:]}: {type(error).__name__}: {error}")
                self.over.set()

    def _refused(self, what: str, error: Exception) -> None:
        why = getattr(error, "reply_code", None) or getattr(error, "status", type(error).__name__)
        self.counts[f"{what[1:]} refused with {why}"] += 1

    # -- clients -----------------------------------------------------------------------------------

    def _publish(self, chance: random.Random) -> None:
        connection = connect(self.broker.port)
        channel = connection.channel()
        while not self.over.is_set() and chance.random() > 0.01:
            size, count = chance.choice((16, 200, 3000, 20_000)), chance.choice((1, 50, 400))
            if chance.random() < 0.02:
                size, count = 5_000_000, 1
            body = os.urandom(size)
            for _ in range(count):
                properties = pika.BasicProperties(
                    delivery_mode=chance.choice((1, 2, 2, 2)), priority=chance.randrange(6)
                )
                channel.basic_publish("fan", "", body, properties)
            # Not further ahead than this.
            channel.exchange_declare("fan", passive=True)
            self.counts["published"] += count
        end(connection, chance)

    def _consume(self, chance: random.Random) -> None:
        connection = connect(self.broker.port)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=chance.choice((1, 100, 1000)))
        if chance.random() < 0.2:
            channel.tx_select()

        def take(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
            self.counts["delivered"] += 1
            what = chance.random()
            if what < 0.7:
                channel.basic_ack(method.delivery_tag)
            elif what < 0.8:
                channel.basic_nack(method.delivery_tag, requeue=True)
            elif what < 0.9:
                channel.basic_reject(method.delivery_tag, requeue=False)
            elif what < 0.905:
                channel.basic_recover(requeue=True)

        for queue in chance.sample([name for name in QUEUES if name != "stream"], 2):
            channel.basic_consume(queue, take)
        until = time.monotonic() + chance.uniform(1, 6)
        while not self.over.is_set() and time.monotonic() < until:
            connection.process_data_events(0.2)
        end(connection, chance)

    def _probe(self, _chance: random.Random) -> None:
        """A client of its own queue, whom none of it concerns."""
        connection = connect(self.broker.port)
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        while not self.over.is_set():
            before, began = self.now, time.monotonic()
            channel.basic_publish("", queue, b"probe")
            while channel.basic_get(queue, auto_ack=True)[0] is None:
                pass
            waited = time.monotonic() - began
            for meanwhile in {before, self.now}:
                self.worst[meanwhile] = max(self.worst.get(meanwhile, 0.0), waited)
            time.sleep(0.005)
        connection.close()

    def _watch(self, _chance: random.Random) -> None:
        assert self.broker.server is not None
        pid = self.broker.server.pid
        while not self.over.is_set():
            if self.broker.server.poll() is not None:
                self.over.set()
                return
            self.peak = max(self.peak, processes.resident_bytes([pid], "RssAnon"))
            time.sleep(0.1)

    # -- the operator ------------------------------------------------------------------------------

    async def _operate(self) -> None:
        client = BrokerClient(self.broker.directory / "data/control.sock")
        deeds = [
            *(self._purge, self._delete, self._vhost, self._user, self._policy, self._pause),
            *(self._get, self._transact, self._read_stream),
        ]
        # Each once, then what chance says.
        coming = self.random.sample(deeds, len(deeds))
        while not self.over.is_set():
            deed = coming.pop() if coming else self.random.choice(deeds)
            queue = self.random.choice(list(QUEUES))
            self.now = f"{deed.__name__[1:]} {queue}"
            try:
                await deed(client, queue)
            except (AMQPError, OSError, BrokerError) as error:
                self._refused(deed.__name__, error)
            else:
                self.counts[deed.__name__[1:]] += 1
            await asyncio.sleep(self.random.uniform(0, 0.3))
            self.now = "nothing"
        await client.close()

    async def _amqp(self, work: Callable[[Any], object], *more: Any) -> None:
        await asyncio.to_thread(with_channel, self.broker.port, work, *more)

    async def _purge(self, _client: BrokerClient, queue: str) -> None:
        if queue != "stream":
            await self._amqp(lambda channel: channel.queue_purge(queue))

    async def _delete(self, _client: BrokerClient, queue: str) -> None:
        await self._amqp(lambda channel: channel.queue_delete(queue))
        await self._amqp(declare)

    async def _vhost(self, client: BrokerClient, _queue: str) -> None:
        name = f"storm {self.counts['vhost']}"
        await client.call("vhost.put", name=name)
        await client.call("permission.put", vhost=name, user="guest", **EVERYTHING)

        def fill(channel: Any) -> None:
            for number in range(30):
                channel.queue_declare(f"q{number}", durable=True)
                channel.queue_bind(f"q{number}", "amq.fanout")
            for _ in range(200):
                channel.basic_publish("amq.fanout", "", os.urandom(500), DURABLE)

        await self._amqp(fill, name)
        await client.call("vhost.delete", name=name)

    async def _user(self, client: BrokerClient, queue: str) -> None:
        await client.call("user.put", name="storm", password="storm", tags="")
        await client.call("permission.put", vhost="/", user="storm", **EVERYTHING)
        connection = await asyncio.to_thread(connect, self.broker.port, "/", "storm")
        channel = connection.channel()
        channel.basic_publish("fan", "", b"of a user who goes", DURABLE)
        await client.call(
            "permission.put", vhost="/", user="storm", configure="", write="", read=queue
        )
        await client.call("permission.delete", vhost="/", user="storm")
        await client.call("user.delete", name="storm")
        connection._impl._transport.abort()

    async def _policy(self, client: BrokerClient, _queue: str) -> None:
        await client.call(
            "policy.put",
            vhost="/",
            name="storm",
            pattern="^(plain|prio|pair)$",
            definition=self.random.choice(POLICIES),
            apply_to="queues",
            priority=0,
        )
        await asyncio.sleep(self.random.uniform(0, 0.5))
        await client.call("policy.delete", vhost="/", name="storm")

    async def _pause(self, client: BrokerClient, queue: str) -> None:
        await client.call("queue.pause", vhost="/", name=queue)
        await asyncio.sleep(0.2)
        await client.call("queue.resume", vhost="/", name=queue)

    async def _get(self, _client: BrokerClient, queue: str) -> None:
        if queue != "stream":
            auto = self.random.random() < 0.5
            await self._amqp(lambda channel: [channel.basic_get(queue, auto) for _ in range(50)])

    async def _transact(self, _client: BrokerClient, _queue: str) -> None:
        def transact(channel: Any) -> None:
            channel.tx_select()
            for _ in range(100):
                channel.basic_publish("fan", "", os.urandom(300), DURABLE)
            channel.tx_commit() if self.random.random() < 0.7 else channel.tx_rollback()

        await self._amqp(transact)

    async def _read_stream(self, _client: BrokerClient, _queue: str) -> None:
        def read(channel: Any) -> None:
            channel.basic_qos(prefetch_count=100)
            channel.basic_consume(
                "stream",
                lambda channel, method, _properties, _body: channel.basic_ack(method.delivery_tag),
                arguments={"x-stream-offset": "first"},
            )
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                channel.connection.process_data_events(0.1)

        await self._amqp(read)

    def __str__(self) -> str:
        waits = sorted(self.worst.items(), key=lambda item: -item[1])[:6]
        told = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
        return "\n".join(
            [
                f"  {told}",
                f"  at most {self.peak / MIB:,.0f} MiB of memory; the probe waited at most "
                + ", ".join(f"{1000 * wait:,.0f} ms ({what})" for what, wait in waits),
                *(f"  {each}" for each in self.trouble),
            ]
        )


def connect(port: int, vhost: str = "/", user: str = "guest") -> Any:
    credentials = pika.PlainCredentials(user, user)
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            *("127.0.0.1", port, vhost, credentials), heartbeat=0, blocked_connection_timeout=60
        )
    )


def with_channel(port: int, work: Callable[[Any], object], vhost: str = "/") -> None:
    connection = connect(port, vhost)
    try:
        work(connection.channel())
    finally:
        if connection.is_open:
            connection.close()


def end(connection: Any, chance: random.Random) -> None:
    """Half of the clients just go away."""
    if chance.random() < 0.5:
        connection.close()
    else:
        connection._impl._transport.abort()


def declare(channel: Any) -> None:
    for exchange in ("fan", "letters"):
        channel.exchange_declare(exchange, "fanout", durable=True)
    for queue, arguments in QUEUES.items():
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.queue_bind(queue, "letters" if queue in LETTERS else "fan")


def storm(directory: Path, index: str, seconds: float, seed: int) -> tuple[Storm, Verdict]:
    """A storm on a broker of its own, which keeps its index of shared bodies in `index`."""
    settings = {**SMALL, "message_store_index": index}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    broker = Leveret(directory / index, options)
    found = Storm(broker, seconds, seed)
    try:
        return found, found.go()
    finally:
        found.over.set()
        broker.kill()


def main() -> int:
    """Exit status 1 if the broker ended, or a message went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.storm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each index's storm (60)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens when (1)")
    options = parser.parse_args()
    well = True
    with tempfile.TemporaryDirectory() as directory:
        for index in INDEXES:
            found, verdict = storm(Path(directory), index, options.seconds, options.seed)
            print(f"{index}: {options.seconds:g} s, seed {options.seed}: {verdict}\n{found}")
            well = well and verdict.clean and not found.trouble
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
