"""Where the usage feed lies: one file an hour, open while its hour lasts, closed by a rename.

`2026-11-21T10-1763719203417.jsonl.open` becomes `2026-11-21T10-1763719203417.jsonl`: the UTC hour,
then the millisecond at which the file was begun, so that no two files ever share a name, whatever
the clock did between two runs of the broker. A file is only ever appended to, whole lines at a
time; a process killed in the middle leaves at most one torn last line, and the next process starts
a line of its own behind it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Protocol

HOUR_MS = 3_600_000
OPEN_SUFFIX = ".open"
NAME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d)-(\d{1,15})\.jsonl(\.open)?")


class Disk(Protocol):
    """The part of the store's door to the file system that the feed uses."""

    def append(self, path: str, data: bytes) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def listdir(self, path: str) -> list[str]: ...
    def makedirs(self, path: str) -> None: ...


class FeedFile:
    """The open file of the current hour in `directory`, and its closing. All calls may wait for the
    disk.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._hour_ms = -1
        self._name: str | None = None
        self._torn = False

    def recover(self, now_ms: int) -> None:
        """Go on with this hour's file if an earlier process left it open; close what earlier hours
        left.
        """
        self._disk.makedirs(self._directory)
        hour_ms = now_ms - now_ms % HOUR_MS
        for name in sorted(self._disk.listdir(self._directory)):
            match = NAME.fullmatch(name)
            if match is None or match[3] is None:
                continue
            self.close()
            self._name = name
            self._torn = True
            if match[1] == hour_text(hour_ms):
                self._hour_ms = hour_ms
            else:
                self.close()

    def append(self, lines: bytes, since_ms: int, until_ms: int) -> None:
        """Write lines about an interval to the file of the hour it began in. Raises OSError."""
        hour_ms = since_ms - since_ms % HOUR_MS
        if hour_ms != self._hour_ms:
            self.close()
            self._hour_ms = hour_ms
        if lines:
            if self._name is None:
                self._name = f"{hour_text(hour_ms)}-{until_ms}.jsonl{OPEN_SUFFIX}"
            # Until the append has come back the last line may be torn: by the process before, or by
            # a full disk.
            data = b"\n" + lines if self._torn else lines
            self._torn = True
            self._disk.append(f"{self._directory}/{self._name}", data)
            self._torn = False

    def roll(self, now_ms: int) -> None:
        """Close the file if its hour is over. Raises OSError."""
        if now_ms - now_ms % HOUR_MS > self._hour_ms:
            self.close()

    def close(self) -> None:
        """End the current hour's file, if there is one: from now on it never changes. Raises
        OSError.
        """
        if self._name is not None:
            path = f"{self._directory}/{self._name}"
            self._disk.rename(path, path.removesuffix(OPEN_SUFFIX))
        self._name = None
        self._torn = False
        self._hour_ms = -1


def hour_text(hour_ms: int) -> str:
    """The UTC hour as file names spell it, `2026-11-21T10`."""
    return datetime.fromtimestamp(hour_ms / 1000, UTC).strftime("%Y-%m-%dT%H")
