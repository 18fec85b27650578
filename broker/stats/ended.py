"""What ended queues and channels had counted, so that no sum goes down when one goes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.wire.channel import Channel


def counts_of(queue: MessageQueue) -> dict[str, int]:
    """All counters of a queue under one name each. `given_up.<reason>` are messages that left
    without an ack where there is no dead-letter exchange, `lettered.<reason>` those that went to
    one; the reasons are RabbitMQ's words."""
    counts: dict[str, int] = dict(queue.counters())
    counts["refused"] = queue.refused
    for reason, (given_up, lettered) in queue.deaths().items():
        counts[f"given_up.{reason}"] = given_up
        counts[f"lettered.{reason}"] = lettered
    return counts


class Ended:
    """Sums over what has ended: of queues by type, of channels the publishes that were nacked."""

    def __init__(self) -> None:
        self.queues: dict[str, Counter[str]] = {}
        self.refused = 0

    def add_queue(self, queue: MessageQueue) -> None:
        self.queues.setdefault(queue.type, Counter()).update(counts_of(queue))

    def add_channel(self, channel: Channel) -> None:
        self.refused += channel.nacked
