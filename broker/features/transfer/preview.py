"""How many messages a filter would take."""

from __future__ import annotations

from typing import Any

from broker.features.transfer.hand_over import DONE, MORE, READING
from broker.features.transfer.moving import Preview
from broker.features.transfer.rules import Rules
from broker.features.transfer.sources import BATCH, BATCH_BYTES


def preview_of(queue: Any, rules: Rules, most: int) -> Any:
    """Looks at the first `most` messages: `go_on(ns)` returns 0 at the end, `looked` and `matched`
    are what it found."""
    return (
        StreamPreview(queue, rules, most) if queue.type == "stream" else Preview(queue, rules, most)
    )


class StreamPreview:
    """The same of a stream."""

    def __init__(self, queue: Any, rules: Rules, most: int) -> None:
        self._queue = queue
        self._rules = rules
        self._most = most
        self._at: int = queue.stream_figures()["first_offset"]
        self._end: int = queue.stream_figures()["next_offset"]
        self._is_reading = False
        self.looked = 0
        self.matched = 0

    def go_on(self, nanoseconds: int) -> int:
        if self._is_reading:
            return DONE if self._queue.deleted else READING
        if self._at >= self._end or self.looked >= self._most or self._queue.deleted:
            return DONE
        self._is_reading = True
        start = self._queue.start_of(self._at, 0)
        self._queue.browse(start, min(BATCH, self._most - self.looked), BATCH_BYTES, self._got)
        return READING if self._is_reading else MORE

    def _got(self, rows: list[Any]) -> None:
        self._is_reading = False
        for offset, timestamp, _, routing_key, listed, _ in rows:
            self._at = offset + 1
            self.looked += 1
            self.matched += self._rules.takes(routing_key, listed, timestamp)
        if not rows:
            self._at = self._end
