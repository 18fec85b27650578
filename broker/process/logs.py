"""The log: one line per event on standard error, as text or as JSON.

Names, reasons and paths in it come from strangers, so control characters are escaped and a line
is always one line.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker.process import unraisable
from broker.process.log_limit import LimitedHandler

ENTRIES_KEPT = 1_000
TEXT_MAX = 4_096
"""Characters of one entry that is kept."""

LINE_MAX = 32_768
"""Characters of a line; of a longer one the beginning and the end are written."""

LEVELS = ("debug", "info", "warning", "error", "critical")

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


_limited: LimitedHandler | None = None
"""What writes, once it is configured."""


def inform(log: logging.Logger, about: str, text: str, *args: object) -> None:
    """As `log.info`, for lines that each client causes: without the ways of a record to handlers
    that are not there. `about` is the source that is limited: an address, or what else names it."""
    if not log.isEnabledFor(logging.INFO):
        return
    if _limited is None:
        log.info(text, *args)
    else:
        _limited.take(
            (log.name, about), lambda: Record(log.name, logging.INFO, "", 0, text, args, None)
        )


def configure(part: str, level: str, style: str, per_second: int = 0) -> None:
    """Send the root logger's records to standard error.

    `part` is the process's name (broker, web, reports), `level` one of debug, info, warning and
    error, `style` text or json, `per_second` the lines that one source may write; 0 is no limit.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONLines(part) if style == "json" else TextLines(part))
    global _limited
    limited = _limited = LimitedHandler([handler, RECENT], per_second)
    logging.setLogRecordFactory(Record)
    logging.basicConfig(level=level.upper(), handlers=[limited], force=True)
    logging.captureWarnings(True)
    # No line shows them, and looking them up is most of what a line costs that is left out.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.getLogger("asyncio").addFilter(_is_news)
    unraisable.tell_by(_unraisable)
    sys.unraisablehook = unraisable.hook
    threading.excepthook = _ended_thread


_NO_NEWS = frozenset({"socket.send() raised exception.", "SSL connection is closed"})
"""What asyncio logs for each write behind the end of a client that left, without saying whose."""


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg not in _NO_NEWS


class Record(logging.LogRecord):
    """A record that does not know what no line shows (thread, process, module): to find that out
    takes longer than all the rest."""

    def __init__(
        self,
        name: str,
        level: int,
        pathname: str,
        lineno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        *others: Any,
        **named: Any,
    ) -> None:
        if args and len(args) == 1 and isinstance(args[0], Mapping) and args[0]:
            args = args[0]
        self.name = name
        self.msg = msg
        self.args = args
        self.levelno = level
        self.levelname = logging.getLevelName(level)
        self.exc_info = exc_info
        self.exc_text = self.stack_info = None
        self.pathname = self.filename = pathname
        self.lineno = lineno
        self.module = self.funcName = ""
        self.created = time.time()
        self.msecs = int(self.created % 1 * 1000)
        self.text: str | None = None
        """The text as it is written, once it was needed."""


class Entry(NamedTuple):
    """One line of the log. `id` rises, over restarts too; `time` is ms since 1970."""

    id: int
    time: int
    level: str
    source: str
    text: str


class Recent(logging.Handler):
    """The last lines of this process's log, for who reads along. Bounded: `ENTRIES_KEPT` entries of
    at most `TEXT_MAX` characters."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: deque[Entry] = deque(maxlen=ENTRIES_KEPT)
        self.told: list[Callable[[], object]] = []
        """Called after each entry, in the thread that logged it."""

    def emit(self, record: logging.LogRecord) -> None:
        at = int(record.created * 1000)
        last = self.entries[-1].id if self.entries else 0
        level = record.levelname.lower()
        text = _line(record)[:TEXT_MAX]
        self.entries.append(Entry(max(last + 1, at * 1000), at, level, record.name, text))
        for callback in self.told:
            callback()

    def since(self, after: int, level: str, count: int) -> list[Entry]:
        """The newest `count` entries behind the id `after`, of this level and worse ones."""
        wanted = LEVELS[LEVELS.index(level) :]
        found = [one for one in list(self.entries) if one.id > after and one.level in wanted]
        return found[max(0, len(found) - count) :]


def one_line(text: str) -> str:
    """The text with control characters and line separators escaped, as `\\x0a`."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


RECENT = Recent()


def _unraisable(error: sys.UnraisableHookArgs) -> None:
    """Logs an exception that Python could not raise anywhere, as a line like others."""
    if isinstance(error.exc_value, UnicodeDecodeError) and isinstance(error.object, bytes):
        # A TLS client asked for a name that is not ASCII; its handshake fails and says so.
        return
    logging.getLogger("leveret").error(
        "%s ignored in %r",
        error.exc_type.__name__,
        error.object,
        exc_info=(error.exc_type, error.exc_value or error.exc_type(), error.exc_traceback),
    )


def _ended_thread(error: threading.ExceptHookArgs) -> None:
    """An exception that ends a thread is a line of the log, too."""
    if error.exc_type is SystemExit:
        return
    value = error.exc_value if error.exc_value is not None else error.exc_type()
    name = error.thread.name if error.thread is not None else "of no name"
    logging.getLogger("leveret").error(
        "thread %s ended", name, exc_info=(error.exc_type, value, error.exc_traceback)
    )


class TextLines(logging.Formatter):
    """`2026-11-21T10:05:00.123Z warning broker: text`"""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname.lower()} {self.part}: {_line(record)}"


class JSONLines(logging.Formatter):
    """One object per line: time, level, part, logger, text."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.part = part

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": _time(record),
                "level": record.levelname.lower(),
                "part": self.part,
                "logger": record.name,
                "text": _text(record),
            },
            ensure_ascii=True,
        )


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@functools.lru_cache(4)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def _line(record: logging.LogRecord) -> str:
    """The text on one line, formed once for all who want it."""
    found: str | None = getattr(record, "text", None)
    if found is None:
        found = record.text = one_line(_text(record))
    return found


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text += "\n" + logging.Formatter().formatException(record.exc_info)
    if len(text) <= LINE_MAX:
        return text
    left_out = len(text) - LINE_MAX
    return f"{text[: LINE_MAX // 2]} … {left_out:,} characters … {text[-LINE_MAX // 2 :]}"
