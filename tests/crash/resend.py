"""`python -m tests.crash.resend`: kill -9 while a publisher sends again what was not confirmed.

This is row T-C4: in no mode of x-confirm-on is a message lost, whatever is killed when; what is
delivered twice is counted. Each message goes to two queues, so that a confirm waits for both.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.client import Client, Confirm, ConnectionLost, Delivery, method, publish, short
from tests.bench.leveret import Leveret
from tests.crash import bodies

MODES = ("write", "ack", "ack-lean")
QUEUES = ("0", "1")
EXCHANGE = "resend"
WINDOW = 200
GIVEN_BACK = 0.01
"""Share of deliveries that a consumer requeues."""
LAST_WAIT_S = 30.0
"""A busy machine may take its time for the last messages; what is lost never comes."""
KILL_AFTER_S = 0.3


@dataclass
class Resend:
    """A run of `messages` through `kills` kills, in one mode. `run` numbers the bodies."""

    broker: Leveret
    mode: str
    messages: int
    kills: int
    run: int
    confirmed: set[int] = field(default_factory=set)
    nacked: int = 0
    early: list[int] = field(default_factory=list)
    """Confirmed before every queue's consumer had acked, in a mode that promises it."""
    acked: dict[str, Counter[int]] = field(
        default_factory=lambda: {queue: Counter() for queue in QUEUES}
    )
    altered: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.run)
        self.waiting = deque(range(self.messages))
        self.in_flight: dict[int, int] = {}

    @property
    def lost(self) -> list[int]:
        """Confirmed, and not acked by the consumers of all queues."""
        counts = self.acked.values()
        return [one for one in self.confirmed if not all(count[one] for count in counts)]

    @property
    def doubled(self) -> int:
        """Acks beyond one for each message and queue."""
        return sum(sum(count.values()) - len(count) for count in self.acked.values())

    def go(self) -> None:
        """Runs until every message is confirmed and the queues are empty."""
        self.broker.start()
        self.declare()
        left = self.kills
        while len(self.confirmed) < self.messages or left:
            killer = threading.Timer(self.random.uniform(0.05, KILL_AFTER_S), self.broker.kill)
            if left:
                killer.start()
            try:
                self.session(until_killed=left > 0)
            except (ConnectionLost, OSError):
                killer.join()
                left -= 1
                self.waiting.extendleft(sorted(self.in_flight.values(), reverse=True))
                self.in_flight.clear()
                self.broker.start()
        self.drain()

    def declare(self) -> None:
        client = Client(self.broker.port)
        flags = b"\2" + b"\0\0\0\0"
        client.send(method(1, 40, 10, b"\0\0" + short(EXCHANGE) + short("fanout") + flags))
        client.wait(40, 11)
        for queue in QUEUES:
            client.declare_queue(queue, arguments={"x-confirm-on": self.mode})
            bind = b"\0\0" + short(queue) + short(EXCHANGE) + short("") + b"\0\0\0\0\0"
            client.send(method(1, 50, 20, bind))
            client.wait(50, 21)
        client.close()

    def session(self, until_killed: bool) -> None:
        """Publishes and consumes on two connections until all is confirmed; with `until_killed`
        the messages never run out."""
        publisher, consumer = Client(self.broker.port), Client(self.broker.port)
        publisher.select_confirms()
        consumer.qos(WINDOW)
        for queue in QUEUES:
            consumer.consume(queue, queue)
        tag = 0
        while until_killed or len(self.confirmed) < self.messages:
            batch = []
            while len(self.in_flight) < WINDOW and len(batch) < 20:
                if until_killed and not self.waiting:
                    self.waiting.append(self.messages)
                    self.messages += 1
                if not self.waiting:
                    break
                tag += 1
                sequence = self.in_flight[tag] = self.waiting.popleft()
                name = bodies.message_id(self.run, 0, sequence)
                body = bodies.make(self.run, 0, sequence)
                batch.append(publish(EXCHANGE, "", body, True, message_id=name))
            if batch:
                publisher.send(b"".join(batch))
            self.consume(consumer, 0.0)
            publisher.receive(0.001)
            self.take_confirms(publisher)
        publisher.close()
        consumer.close()

    def consume(self, client: Client, timeout: float) -> bool:
        """Takes what has come within `timeout` seconds; whether anything has."""
        came = client.receive(timeout)
        for event in client.events:
            if not isinstance(event, Delivery):
                continue
            if self.random.random() < GIVEN_BACK:
                client.send(method(1, 60, 90, event.delivery_tag.to_bytes(8, "big") + b"\1"))
                continue
            _, _, sequence = bodies.identity(event.message_id)
            self.altered += event.body != bodies.make(self.run, 0, sequence)
            self.acked[event.consumer_tag][sequence] += 1
            client.acknowledge(event.delivery_tag)
        client.events.clear()
        return came

    def take_confirms(self, client: Client) -> None:
        for event in client.events:
            if not isinstance(event, Confirm):
                continue
            tags = [event.delivery_tag]
            if event.multiple:
                tags = [tag for tag in self.in_flight if tag <= event.delivery_tag]
            for tag in tags:
                sequence = self.in_flight.pop(tag)
                if not event.ack:
                    self.nacked += 1
                    self.waiting.append(sequence)
                    continue
                self.confirmed.add(sequence)
                if self.mode != "write" and not all(acks[sequence] for acks in self.acked.values()):
                    self.early.append(sequence)
        client.events.clear()

    def drain(self) -> None:
        """Consumes until the queues are empty, or nothing comes any more of what is missing."""
        client = Client(self.broker.port)
        client.qos(WINDOW)
        for queue in QUEUES:
            client.consume(queue, queue)
        came_at = time.monotonic()
        while True:
            if self.consume(client, 0.5):
                came_at = time.monotonic()
            elif not self.lost or time.monotonic() - came_at > LAST_WAIT_S:
                break
        client.close()

    def __str__(self) -> str:
        return (
            f"T-C4 {self.mode}: {self.kills} kills, {len(self.confirmed):,} confirmed, "
            f"lost {len(self.lost)}, altered {self.altered}, confirmed early {len(self.early)}, "
            f"nacked and sent again {self.nacked:,}, delivered twice {self.doubled:,}"
        )


def main() -> int:
    """Exit status 1 if anything was lost, altered or confirmed early."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.resend")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    options = parser.parse_args()
    faults = 0
    for mode in MODES:
        base = Path(tempfile.mkdtemp(prefix="leveret-resend-"))
        broker = Leveret(base)
        resend = Resend(broker, mode, options.messages, options.kills, options.seed)
        try:
            resend.go()
        finally:
            broker.stop()
            shutil.rmtree(base)
        print(f"{resend} (seed {options.seed})", flush=True)
        faults += len(resend.lost) + resend.altered + len(resend.early)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
