"""A consumer process: consumes some queues, checks every byte, acknowledges, fences its acks.

`python -m tests.crash.consumer PORT RUN SEED QUEUES JOURNAL`, QUEUES as 0,2,3; a consumer with an
odd SEED now and then gives back what it has instead of acknowledging it. End of standard input
means: read until nothing comes any more, acknowledge all, fence, end. On standard output it
prints `ready`, and at its end the number of messages it acknowledged per queue, as JSON.
"""

from __future__ import annotations

import json
import random
import select
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path

from tests.bench.client import Client, ConnectionLost, Delivery
from tests.crash import bodies
from tests.crash.journal import Journal, Kind

PREFETCH = 300
QUIET_SECONDS = 0.4


class Consumer:
    """One connection that consumes several queues."""

    def __init__(self, port: int, run: int, seed: int, queues: list[int], journal: Journal) -> None:
        self.run, self.queues, self.journal = run, queues, journal
        self.random = random.Random(seed)
        self.requeues = seed % 2 == 1
        self.client = Client(port)
        self.unacked: list[tuple[int, int, int, int]] = []
        """(delivery tag, queue, publisher, sequence), oldest first."""
        self.ack_after = self.fence_after = 1
        self.acks = 0
        self.acked: Counter[int] = Counter()

    def start(self) -> None:
        """Starts one consumer per queue."""
        self.client.qos(PREFETCH)
        for queue in self.queues:
            self.journal.add(Kind.SESSION, queue=queue)
            self.client.consume(f"crash.{queue}", str(queue))
        self.take()

    def take(self) -> None:
        """Journals the deliveries that have come, and acknowledges in random handfuls."""
        while self.client.events:
            event = self.client.events.pop(0)
            if isinstance(event, Delivery):
                self._delivered(event)
                if len(self.unacked) >= self.ack_after:
                    self.acknowledge()
                    self.ack_after = self.random.choice((1, 1, 5, 20, 100))
        self.journal.flush()

    def leftover(self) -> None:
        """Journals what had come when the broker went away; acknowledges nothing."""
        for event in self.client.events:
            if isinstance(event, Delivery):
                self._delivered(event)

    def _delivered(self, delivery: Delivery) -> None:
        queue = int(delivery.consumer_tag)
        try:
            run, publisher, sequence = bodies.identity(delivery.message_id)
        except ValueError:
            run = -1
        if run != self.run:
            self.journal.add(Kind.STRANGER, queue=queue)
            return
        altered = delivery.body != bodies.make(run, publisher, sequence)
        flag = (1 if delivery.redelivered else 0) | (2 if altered else 0)
        self.journal.add(Kind.DELIVERED, publisher, sequence, queue, flag)
        self.unacked.append((delivery.delivery_tag, queue, publisher, sequence))

    def acknowledge(self) -> None:
        """Acknowledges everything so far; now and then follows up with a fence."""
        if not self.unacked:
            return
        if self.requeues and self.random.random() < 0.03:
            self.give_back()
            return
        for _, queue, publisher, sequence in self.unacked:
            self.journal.add(Kind.ACK_SENT, publisher, sequence, queue)
            self.acked[queue] += 1
        self.client.acknowledge(self.unacked[-1][0], multiple=True)
        self.unacked.clear()
        self.acks += 1
        if self.acks >= self.fence_after:
            self.fence()
            self.acks, self.fence_after = 0, self.random.randint(1, 20)

    def give_back(self) -> None:
        """Requeues everything unacknowledged; it has to come again, marked as redelivered."""
        for _, queue, publisher, sequence in self.unacked:
            self.journal.add(Kind.REQUEUED, publisher, sequence, queue)
        self.client.reject(self.unacked[-1][0])
        self.unacked.clear()

    def fence(self) -> None:
        """When qos-ok is here, the acks before it have been processed."""
        self.journal.flush()
        self.client.qos(PREFETCH)
        self.journal.add(Kind.FENCED)

    def loop(self) -> None:
        """Consumes until told to stop and quiet."""
        stopping, quiet_since = False, 0.0
        while True:
            if self.client.receive(0.05):
                self.take()
                quiet_since = time.monotonic()
            elif not stopping and select.select([sys.stdin], [], [], 0)[0]:
                stopping, quiet_since = True, time.monotonic()
            elif self.unacked:
                self.acknowledge()
            elif stopping and time.monotonic() - quiet_since > QUIET_SECONDS:
                break
        self.fence()
        self.take()
        self.client.close()


def main(arguments: list[str]) -> int:
    """Exit status 0 whether the broker went away or not; anything else is a fault of the test."""
    port, run, seed = map(int, arguments[:3])
    queues = [int(number) for number in arguments[3].split(",")]
    journal = Journal(Path(arguments[4]))
    acked: Counter[int] = Counter()
    consumer: Consumer | None = None
    try:
        consumer = Consumer(port, run, seed, queues, journal)
        client = consumer.client
        # As if the broker had gone: what has come stays in order.
        signal.signal(signal.SIGTERM, lambda *_: client.socket.shutdown(socket.SHUT_RDWR))
        acked = consumer.acked
        print("ready", flush=True)
        consumer.start()
        consumer.loop()
    except (ConnectionLost, OSError):
        if consumer is not None:
            consumer.leftover()
    journal.close()
    print(json.dumps(acked), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
