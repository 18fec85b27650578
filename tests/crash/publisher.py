"""A publisher process: publishes with confirms until the broker is gone or it is told to stop.

`python -m tests.crash.publisher PORT RUN PUBLISHER FIRST_SEQUENCE QUEUES JOURNAL`; end of standard
input means: publish no more, wait for the confirms that are due, end.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path

from tests.bench.client import Client, Confirm, ConnectionLost, publish
from tests.crash import bodies
from tests.crash.journal import Journal, Kind

WINDOW = 200
BATCH = 20
FANOUT = "crash.fanout"


def route(publisher: int, sequence: int, queues: int) -> tuple[str, str, int]:
    """(exchange, routing key, bit mask of queues): every 16th message goes to all queues."""
    if bodies.is_fanned_out(sequence):
        return FANOUT, "", (1 << queues) - 1
    queue = (sequence + publisher) % queues
    return "", f"crash.{queue}", 1 << queue


def main(arguments: list[str]) -> int:
    """Exit status 0 whether the broker went away or not; anything else is a fault of the test."""
    port, run, publisher, sequence, queues = map(int, arguments[:5])
    journal = Journal(Path(arguments[5]))
    unconfirmed: dict[int, int] = {}
    try:
        client = Client(port)
        client.select_confirms()
        print("ready", flush=True)
        stopping, tag = False, 0
        while not stopping or unconfirmed:
            batch = []
            while not stopping and len(unconfirmed) < WINDOW and len(batch) < BATCH:
                exchange, key, mask = route(publisher, sequence, queues)
                body = bodies.make(run, publisher, sequence)
                name = bodies.message_id(run, publisher, sequence)
                batch.append(publish(exchange, key, body, True, client.frame_max, name))
                journal.add(Kind.ATTEMPTED, publisher, sequence, mask)
                tag += 1
                unconfirmed[tag] = sequence
                sequence += 1
            journal.flush()
            if batch:
                client.send(b"".join(batch))
            client.receive(0.0 if len(unconfirmed) < WINDOW and not stopping else 1.0)
            for event in client.events:
                if isinstance(event, Confirm):
                    _settle(journal, publisher, unconfirmed, event)
            client.events.clear()
            if not stopping and select.select([sys.stdin], [], [], 0)[0]:
                stopping = True
        client.close()
    except (ConnectionLost, OSError):
        pass
    journal.close()
    return 0


def _settle(
    journal: Journal, publisher: int, unconfirmed: dict[int, int], confirm: Confirm
) -> None:
    """Journals what a confirm settles: the one tag, or all up to it."""
    if confirm.multiple:
        tags = [
            tag for tag in unconfirmed if tag <= confirm.delivery_tag or not confirm.delivery_tag
        ]
    else:
        tags = [confirm.delivery_tag]
    for tag in tags:
        kind = Kind.CONFIRMED if confirm.ack else Kind.NACKED
        journal.add(kind, publisher, unconfirmed.pop(tag))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
