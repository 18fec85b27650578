"""The word of trouble of a queue or a consumer; the words are `control_schema.TROUBLE`."""

from __future__ import annotations

from typing import Any

from broker.control_schema import TROUBLE
from broker.stats import Gauge

UNCONFIRMED_AFTER_MS = 60_000
"""Without the confirm of the oldest message that a channel published."""

NEAR_LIMIT = 0.9
GROWTH_MIN = 0.5
"""Messages a second; less is noise."""

RANK = {word: place for place, word in enumerate((*TROUBLE[:6], "full", *TROUBLE[6:]))}
WORRYING = frozenset(RANK) - {"fine", "idle"}


def of_queue(queue: Any, gauge: Gauge | None, now: int, stuck_after: float) -> str:
    """The word for a queue; `stuck_after` is the setting, in seconds. A stream has few: nobody has
    to take anything out of it."""
    if is_refusing(queue):
        return "refusing"
    if queue.paused:
        return "paused"
    if queue.type == "stream":
        return "idle" if gauge is None or gauge.is_quiet else "fine"
    ready, unacked = queue.messages_ready, queue.messages_unacknowledged
    if not ready and not unacked and gauge is None:
        return "idle"
    if ready and not queue.consumer_count:
        return "not served"
    if gauge is None:
        return "fine"
    if unacked and now - gauge.acked_at > stuck_after * 1000:
        return "stuck"
    share = limit_share(queue)
    if share is not None and share >= NEAR_LIMIT:
        return "at a limit"
    if ready and gauge.growth > max(GROWTH_MIN, 0.05 * gauge.rate("publish")):
        return "growing"
    if gauge.rate("redeliver") > 0:
        return "redelivering"
    return "idle" if not ready and not unacked and gauge.is_quiet else "fine"


def is_refusing(queue: Any) -> bool:
    """Whether the queue is full and refuses publishes, or did so some seconds ago."""
    refusals = getattr(queue, "refusals", None)
    return refusals is not None and refusals.is_going_on


def of_consumer(consumer: Any, gauge: Gauge | None, now: int, stuck_after: float) -> str:
    """The word for a consumer; `gauge` is its channel's."""
    unacked = consumer.unacked
    if unacked and gauge is not None and now - gauge.acked_at > stuck_after * 1000:
        return "stuck"
    if consumer.prefetch_count and unacked >= consumer.prefetch_count:
        return "full"
    if unacked or (gauge is not None and not gauge.is_quiet):
        return "fine"
    return "idle"


def limit_share(queue: Any) -> float | None:
    """How full the queue is against its nearest limit, from 0 to 1; None without a limit."""
    limits = queue.limits
    if limits is None:
        return None
    shares = []
    if limits.max_length > 0:
        shares.append(queue.messages_ready / limits.max_length)
    if limits.max_length_bytes > 0:
        shares.append(queue.message_bytes_ready / limits.max_length_bytes)
    return max(shares, default=None)
