"""Where the usage feed lies: one file an hour, open while its hour lasts, closed by a rename.

`2026-11-21T10-1763719203417.jsonl.open` becomes `2026-11-21T10-1763719203417.jsonl`: the UTC hour,
then the millisecond at which the file was begun, so that no two files ever share a name, whatever
the clock did between two runs of the broker. A file is only ever appended to, whole lines at a
time; a process killed in the middle leaves at most one torn last line, and the next process starts
a line of its own behind it. While the broker runs there is always an open file, and its last lines
tell the next start whether the stop was a clean one.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

HOUR_MS = 3_600_000
OPEN_SUFFIX = ".open"
NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d{1,15})\.jsonl(\.open)?")

# A line about the feed itself is looked for from the end, in blocks of this length.
BLOCK_BYTES = 1 << 18
EVENT = re.compile(rb'^\{"v":\d+,"kind":"(?:start|round|stop)",[^\n]*\}$', re.MULTILINE)


class Disk(Protocol):
    """The part of the store's access to the file system that the feed uses."""

    def append(self, path: str, data: bytes) -> None: ...
    def truncate(self, path: str, length: int) -> None: ...
    def size(self, path: str) -> int: ...
    def read_part(self, path: str, offset: int, length: int) -> bytes: ...
    def rename(self, source: str, target: str) -> None: ...
    def listdir(self, path: str) -> list[str]: ...
    def makedirs(self, path: str) -> None: ...


class Ending(NamedTuple):
    """How an earlier run ended: up to when its counts are in the feed (UTC ms), and whether that
    was all."""

    until: int
    is_clean: bool


class FeedFile:
    """The open file of the current hour in `directory`, and its closing. All calls may wait for the
    disk.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._hour_ms = -1
        self._name: str | None = None
        self._size = 0
        # Until an append has come back, what lies behind `_size` is nothing; what an earlier
        # process left may end in the middle of a line.
        self._is_torn = self._is_foreign = False

    def recover(self, now_ms: int) -> Ending | None:
        """Continue this hour's file if an earlier process left it open; close those of earlier
        hours. Returns how that process ended, where the file says so.
        """
        self._disk.makedirs(self._directory)
        hour_ms = now_ms - now_ms % HOUR_MS
        ending = None
        for name in sorted(self._disk.listdir(self._directory)):
            match = NAME.fullmatch(name)
            if match is None or match[3] is None:
                continue
            self.close()
            ending = self._ending(name) or ending
            self._name = name
            self._size = self._disk.size(f"{self._directory}/{name}")
            self._is_foreign = True
            if match[1] == hour_text(hour_ms):
                self._hour_ms = hour_ms
            else:
                self.close()
        return ending

    def _ending(self, name: str) -> Ending | None:
        """What the last line about the feed itself says; None in a file without any."""
        path = f"{self._directory}/{name}"
        end = self._disk.size(path)
        tail = b""
        while end > 0:
            start = max(0, end - BLOCK_BYTES)
            # With the start of the block behind it: a line may lie in both.
            tail = self._disk.read_part(path, start, end - start) + tail[:4096]
            for line in reversed(EVENT.findall(tail)):
                try:
                    event = json.loads(line)
                    return Ending(int(event["until"]), event["kind"] == "stop")
                except (ValueError, KeyError, TypeError):
                    continue
            end = start
        return None

    def append(self, lines: bytes, since_ms: int, until_ms: int) -> None:
        """Write lines about an interval to the file of the hour it began in. Raises OSError; then
        nothing is written, or it is cut off before anything else is."""
        self._cut()
        hour_ms = since_ms - since_ms % HOUR_MS
        if hour_ms != self._hour_ms:
            self.close()
            self._hour_ms = hour_ms
        if not lines:
            return
        if self._name is None:
            self._name = f"{hour_text(hour_ms)}-{until_ms}.jsonl{OPEN_SUFFIX}"
            self._size = 0
        data = b"\n" + lines if self._is_foreign else lines
        self._is_torn = True
        self._disk.append(f"{self._directory}/{self._name}", data)
        self._size += len(data)
        self._is_torn = self._is_foreign = False

    def _cut(self) -> None:
        """Take away what an append that failed has left."""
        if not self._is_torn:
            return
        path = f"{self._directory}/{self._name}"
        try:
            if self._disk.size(path) > self._size:
                self._disk.truncate(path, self._size)
        except FileNotFoundError:
            self._name = None
        self._is_torn = False

    def roll(self, now_ms: int, first_line: bytes) -> None:
        """Close the file if its hour is over, once the next one is there with its first line: so
        there is an open file at any time. Raises OSError."""
        hour_ms = now_ms - now_ms % HOUR_MS
        if hour_ms <= self._hour_ms:
            return
        name = f"{hour_text(hour_ms)}-{now_ms}.jsonl{OPEN_SUFFIX}"
        self._disk.append(f"{self._directory}/{name}", first_line)
        self.close()
        self._hour_ms = hour_ms
        self._name = name
        self._size = len(first_line)

    def close(self) -> None:
        """End the current hour's file, if there is one: from now on it never changes. Raises
        OSError.
        """
        self._cut()
        if self._name is not None:
            path = f"{self._directory}/{self._name}"
            self._disk.rename(path, path.removesuffix(OPEN_SUFFIX))
        self._name = None
        self._is_foreign = False
        self._hour_ms = -1


def hour_text(hour_ms: int) -> str:
    """The UTC hour as file names spell it, `2026-11-21T10`."""
    return datetime.fromtimestamp(hour_ms / 1000, UTC).strftime("%Y-%m-%dT%H")
