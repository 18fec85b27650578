"""The names of a vhost's history of messages (docs/history.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HISTORY = "amq.history"
"""The stream that holds it, in each vhost that has one."""

LEVELS = ("off", "headers", "full")

PREFIX = "x-history-"
"""Headers that begin so are the broker's in a record; those that a publisher wrote are left out."""

USER = f"{PREFIX}user"
CONNECTION = f"{PREFIX}connection"
QUEUES = f"{PREFIX}queues"
QUEUE_COUNT = f"{PREFIX}queue-count"
OUTCOME = f"{PREFIX}outcome"
BYTES = f"{PREFIX}bytes"
BODY = f"{PREFIX}body"

QUEUE = f"{PREFIX}queue"
PLACES = f"{PREFIX}places"
EVENT = f"{PREFIX}event"
PLACE = f"{PREFIX}place"
CONSUMER = f"{PREFIX}consumer"
COUNT = f"{PREFIX}count"
SINCE = f"{PREFIX}since"

PLACE_KEY = f"header:{PLACE}"
"""The history is indexed by it where events are kept."""

ROUTED, UNROUTABLE, REFUSED, DELAYED = "routed", "unroutable", "refused", "delayed"


def outcome_of(headers: Mapping[str, Any]) -> str | None:
    """What came of the publish that a record is of: ROUTED where it says nothing. None: it is an
    event, and no publish."""
    outcome: str | None = headers.get(OUTCOME)
    return ROUTED if outcome is None and EVENT not in headers else outcome


QUEUES_MAX = 64
"""Names of queues in one record; where there were more, `QUEUE_COUNT` says how many."""

EVENTS = (
    "rejected",
    "expired",
    "dropped",
    "delivery_limit",
    "delivered",
    "delivered_no_ack",
    "got",
    "got_no_ack",
    "acked",
    "requeued",
    "dead_lettered",
    "discarded",
    "moved",
    "copied",
    "replayed",
    "purged",
    "deleted",
)
"""In the order of `broker.kernel.recording`."""

GAP = "gap"
"""Events before this one were given up."""
GAP_PLACE = "gap"

PLACES_MAX = 256
"""Places that the life of one message is followed through."""


def place_of(incarnation: int, position: int) -> str:
    """The place of a record in a queue or stream: of a stream, `position` is its offset."""
    return f"{incarnation:016x}{position:016x}"


def queue_part(place: str) -> str:
    """The part of a place that all places of a queue begin with: that of what happened to all that
    was ready in it."""
    return place[:16]
