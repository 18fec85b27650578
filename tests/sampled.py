"""A queue as the statistics see it, whose figures are what a test says."""

from __future__ import annotations

from typing import Any

from broker.settings.bounds import DEFAULTS
from broker.stats.gauges import KINDS
from tests.counted import CountedQueue

COUNTERS, LEVELS = KINDS["queue"]


class SampledQueue(CountedQueue):
    """`sampled` has its counters and levels by name; it begins with zeros."""

    type = "classic"
    paused = False
    refusals: Any = None
    limits: Any = None
    message_bytes_ready = 0

    def __init__(self, name: str = "q", incarnation: int = 1) -> None:
        kind: dict[str, Any] = {
            "durable": False,
            "exclusive": False,
            "auto_delete": False,
            "arguments": None,
            "owner": None,
            "bounds": DEFAULTS,
        }
        super().__init__("/", name, incarnation, **kind)
        self.sampled = dict.fromkeys((*COUNTERS, *LEVELS), 0)

    @property
    def messages_ready(self) -> int:
        return self.sampled["messages_ready"]

    @property
    def messages_unacknowledged(self) -> int:
        return self.sampled["messages_unacknowledged"]
