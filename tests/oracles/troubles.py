"""The word of trouble of a queue, slowly: what `broker.stats.trouble` has to say."""

from __future__ import annotations

from typing import Any

from broker.stats import Gauge
from broker.stats.trouble import GROWTH_MIN, NEAR_LIMIT


def of_queue(queue: Any, gauge: Gauge | None, now: int, stuck_after: float) -> str:
    if queue.refusals is not None and queue.refusals.is_going_on:
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


def limit_share(queue: Any) -> float | None:
    limits = queue.limits
    if limits is None:
        return None
    shares = []
    if limits.max_length > 0:
        shares.append(queue.messages_ready / limits.max_length)
    if limits.max_length_bytes > 0:
        shares.append(queue.message_bytes_ready / limits.max_length_bytes)
    return max(shares, default=None)
