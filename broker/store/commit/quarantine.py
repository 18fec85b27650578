"""Bytes that lie in a segment and are no record: kept aside, reported, and never delivered.

Each stretch is two files in `<data>/quarantine`: the bytes, and a JSON object that tells where they
were. The names hold the place, so a stretch that is found again replaces itself. Nothing here is
ever read back into a queue or deleted by the broker.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from broker.store.files import disk

log = logging.getLogger("leveret.store")

SHOWN = 200
"""Entries kept in memory; the directory holds them all."""


class Writer(Protocol):
    """Writes whole files in the background."""

    def write_files(self, directory: str, files: dict[str, bytes]) -> None:
        """Names to bytes."""


def nameless(_incarnation: int) -> tuple[str, str]:
    """For a queue whose name is unknown."""
    return "", ""


class Quarantine:
    """The quarantine of a data directory. `name_of(incarnation)` is (vhost, queue)."""

    def __init__(self, directory: str, now: Callable[[], float] = lambda: time.time()) -> None:
        self.directory = directory
        self.name_of: Callable[[int], tuple[str, str]] = nameless
        self.entries: list[dict[str, Any]] = []
        self.count = 0
        """Stretches, of earlier runs too."""
        self._now = now
        self._last = (0, ("", ""))

    def load(self) -> None:
        """Reads what earlier runs put here. A file that cannot be read is left alone."""
        for name in disk.listdir(self.directory):
            if not name.endswith(".json"):
                continue
            try:
                entry = json.loads(disk.read(f"{self.directory}/{name}"))
                self._add({**entry, "file": str(entry["file"])})
            except (OSError, ValueError, TypeError, KeyError):
                log.warning("%s/%s is not a quarantine entry; left alone", self.directory, name)

    def take(
        self,
        incarnation: int,
        segment: int,
        position: int,
        data: bytes,
        length: int,
        writer: Writer | None = None,
    ) -> dict[str, Any]:
        """Keeps what lies at a place: `length` bytes, of which `data` could be read. With a
        `writer` in the background, else at once. Failing to write it is logged, never raised."""
        owner = self.owner_of(incarnation)
        stem, entry = self._entry(owner, incarnation, segment, position, length)
        again = disk.exists(entry["file"])
        self._report(entry)
        files = _files(stem, entry, data)
        try:
            if writer is not None:
                writer.write_files(self.directory, files)
            else:
                self._write(files)
        except OSError as error:
            log.error("%s: cannot keep damaged bytes: %s", self.directory, error)
        self.note(entry, again)
        return entry

    def keep(
        self, owner: tuple[str, str], incarnation: int, segment: int, position: int, data: bytes
    ) -> dict[str, Any]:
        """`take` for another thread than the loop's, on which `owner_of` has told the `owner`,
        and on which `note` has to follow. Raises OSError where the bytes cannot be kept."""
        stem, entry = self._entry(owner, incarnation, segment, position, len(data))
        self._write(_files(stem, entry, data))
        self._report(entry)
        return entry

    def owner_of(self, incarnation: int) -> tuple[str, str]:
        """`name_of`, which may look through all queues: where one stretch of a queue is damaged,
        mostly others are."""
        if self._last[0] != incarnation or not self._last[1][0]:
            self._last = (incarnation, self.name_of(incarnation))
        return self._last[1]

    def _entry(
        self, owner: tuple[str, str], incarnation: int, segment: int, position: int, length: int
    ) -> tuple[str, dict[str, Any]]:
        """What the names of its files begin with, and its description."""
        vhost, queue = owner
        stem = f"{incarnation:016x}-{segment:010d}-{position:010d}"
        return stem, {
            "vhost": vhost,
            "queue": queue,
            "incarnation": f"{incarnation:016x}",
            "segment": segment,
            "position": position,
            "length": length,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now())),
            "file": f"{self.directory}/{stem}.bin",
        }

    def _report(self, entry: dict[str, Any]) -> None:
        log.error(
            "queue '%s' in vhost '%s': %d bytes at position %d of segment %d are no message; they "
            "were copied to %s, and delivery continues behind them",
            entry["queue"],
            entry["vhost"],
            entry["length"],
            entry["position"],
            entry["segment"],
            entry["file"],
        )

    def _write(self, files: dict[str, bytes]) -> None:
        disk.makedirs(self.directory)
        for name, content in files.items():
            disk.write_atomic(f"{self.directory}/{name}", content)

    def note(self, entry: dict[str, Any], again: bool = False) -> None:
        """Shows what `keep` kept. A stretch that is found `again`, by another queue or another
        start, counts once."""
        others = [each for each in self.entries if each["file"] != entry["file"]]
        if again or len(others) < len(self.entries):
            self.count -= 1
        self.entries = others
        self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self.count += 1
        self.entries.append(entry)
        del self.entries[:-SHOWN]


def _files(stem: str, entry: dict[str, Any], data: bytes) -> dict[str, bytes]:
    return {f"{stem}.bin": data, f"{stem}.json": json.dumps(entry, indent=1).encode()}
