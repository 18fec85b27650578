"""Queues with limits, for the tests of expiry, length and single active consumers."""

import time
import uuid
from collections.abc import Callable
from typing import Any

from tests.amqp import raw
from tests.amqp.raw import Client


def limited(client: Client, **arguments: Any) -> str:
    """A new queue with these arguments (`x_message_ttl=…`)."""
    name = f"limited-{uuid.uuid4().hex[:8]}"
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call(1, "queue.declare", queue=name, arguments=table)
    return name


def fill(client: Client, queue: str, *bodies: bytes, **values: Any) -> dict[int, str]:
    """Publishes on a confirming channel of its own and returns what was told of each message."""
    client.call(9, "channel.open")
    client.call(9, "confirm.select")
    client.send(b"".join(raw.publish(9, "", queue, body, **values) for body in bodies))
    told = client.expect_confirms(9, len(bodies))
    client.call(9, "channel.close")
    return told


def ready(client: Client, queue: str) -> int:
    """Ready messages by a passive declare."""
    count: int = client.call(1, "queue.declare", queue=queue, passive=True).message_count
    return count


def drain(client: Client, queue: str) -> list[bytes]:
    """Every ready body, taken out."""
    found = []
    while (got := client.get(1, queue, no_ack=True)) is not None:
        found.append(got.body)
    return found


def seconds_until(condition: Callable[[], bool], limit: float = 30.0) -> float:
    """How long it took until the condition held; each look is a round trip to the broker."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit, "it did not come about"
    return time.monotonic() - started
