"""How many lines a second one source may write to the log, so that no client can fill it.

The source of a line is the address that it names, or its text without the arguments where it names
none. A source may write `per_second` lines, and `BURST_S` times as many at once; all together ten
times that. What is more is counted, and told once in `PERIOD_S`. Lines of level debug are not
limited.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence

from broker.process.buckets import Buckets

BURST_S = 10
PERIOD_S = 10.0
SOURCES_KEPT = 1_000
TOLD_MAX = 10
"""Sources that are named in one period; the others are added up."""
ALL_TIMES = 10

_ADDRESS = re.compile(
    r"(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-f:.]+\]|[0-9a-f]{0,4}:[0-9a-f:.]+", re.ASCII
)

Source = tuple[str, str]
"""Name of the logger, and an address or the template of the text."""


class LimitedHandler(logging.Handler):
    """Gives records to other handlers, as far as the limit allows; 0 is no limit."""

    def __init__(
        self,
        handlers: Sequence[logging.Handler],
        per_second: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._per_second = per_second
        self._monotonic = monotonic
        self._buckets = Buckets(monotonic(), per_second, BURST_S, ALL_TIMES, SOURCES_KEPT)
        self._left_out: dict[Source, int] = {}
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._per_second and record.levelno > logging.DEBUG and not self._may(source_of(record)):
            return
        self._give(record)

    def take(self, source: Source, make: Callable[[], logging.LogRecord]) -> None:
        """As `handle`, for a record of which the source is known and which no filter has to pass:
        it is only made if there is room for it."""
        with self.lock:  # type: ignore[union-attr]  # it has one
            if not self._per_second or self._may(source):
                self._give(make())

    def tell(self) -> None:
        """Writes what was left out since the last time."""
        self.acquire()
        try:
            left_out, self._left_out, self._timer = self._left_out, {}, None
            ranked = sorted(left_out.items(), key=lambda one: -one[1])
            for (name, about), count in ranked[:TOLD_MAX]:
                self._write(name, f"{count:,} more lines about {about!r} are left out")
            if rest := sum(count for _, count in ranked[TOLD_MAX:]):
                self._write("leveret.log", f"{rest:,} lines about other sources are left out")
        finally:
            self.release()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self.tell()
        super().close()

    def _give(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            handler.emit(record)  # the lock of this one is held, and none has filters

    def _may(self, source: Source) -> bool:
        if self._buckets.take(source, self._monotonic()):
            return True
        if len(self._left_out) >= SOURCES_KEPT and source not in self._left_out:
            source = ("leveret.log", "further sources")
        self._left_out[source] = self._left_out.get(source, 0) + 1
        if self._timer is None:
            self._timer = threading.Timer(PERIOD_S, self.tell)
            self._timer.daemon = True
            self._timer.start()
        return False

    def _write(self, name: str, text: str) -> None:
        text += f" in {PERIOD_S:g} s (log_lines_per_second is {self._per_second})"
        record = logging.LogRecord(name, logging.WARNING, "", 0, text, None, None)
        for handler in self._handlers:
            handler.handle(record)


def source_of(record: logging.LogRecord) -> Source:
    """The first address among the arguments of a line, or else its template."""
    if isinstance(record.args, tuple):
        for value in record.args:
            if isinstance(value, str) and (found := _ADDRESS.match(value)):
                return record.name, found[0]
    return record.name, str(record.msg)[:200]
