"""The word of trouble of a queue or a consumer; the words are `control_schema.TROUBLE`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.schema.control_schema import TROUBLE
from broker.stats.trouble import GROWTH_MIN, limit_share, of_consumer, of_queue

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue

__all__ = [
    "GROWTH_MIN",
    "RANK",
    "UNCONFIRMED_AFTER_MS",
    "WORRYING",
    "is_refusing",
    "limit_share",
    "of_consumer",
    "of_queue",
]

UNCONFIRMED_AFTER_MS = 60_000
"""Without the confirm of the oldest message that a channel published."""

RANK = {word: place for place, word in enumerate((*TROUBLE[:6], "full", *TROUBLE[6:]))}
WORRYING = frozenset(RANK) - {"fine", "idle"}


def is_refusing(queue: MessageQueue) -> bool:
    """Whether the queue is full and refuses publishes, or did so some seconds ago."""
    return queue.refusals is not None and queue.refusals.is_going_on
