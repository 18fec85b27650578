"""What a recording of the store's file operations says is on disk, at each of its moments.

Bytes are durable when a sync of their file, or of the whole file system, ended after their write
ended. A file can be found after a power cut only if the entry in its directory is durable too, and
so on up to the data directory, which exists before the recording begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

Event = tuple[str, str | None, int, int, int]
"""(kind, path, offset or number, length, errno), as `broker.store.files.disk.recorded` gives
them."""


class Durability:
    """Follows a recording. `known` are the directories that were there before it began."""

    def __init__(self, known: Iterable[str]) -> None:
        self.durable_entries = set(known)
        self.fresh_entries: set[str] = set()
        self.written: dict[str, list[tuple[int, int]]] = {}
        self.durable: dict[str, list[tuple[int, int]]] = {}

    def take(self, event: Event) -> None:
        """One file operation that ended. Operations that failed change nothing."""
        kind, path, offset, length, error = event
        if error or path is None:
            return
        if kind in ("open", "mkdir"):
            if path not in self.durable_entries:
                self.fresh_entries.add(path)
        elif kind == "write":
            if path not in self.durable_entries:
                self.fresh_entries.add(path)
            self.written.setdefault(path, []).append((offset, offset + length))
        elif kind == "sync":
            self._sync(path)
        elif kind == "sync_directory":
            done = {
                entry for entry in self.fresh_entries if str(PurePosixPath(entry).parent) == path
            }
            self.fresh_entries -= done
            self.durable_entries |= done
        elif kind == "sync_file_system":
            for file in list(self.written):
                self._sync(file)
            self.durable_entries |= self.fresh_entries
            self.fresh_entries.clear()
        elif kind == "rename":  # a replacement: the journals and settings files
            self.fresh_entries.add(path)

    def _sync(self, path: str) -> None:
        spans = self.durable.setdefault(path, [])
        for start, end in self.written.pop(path, []):
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))

    def reachable(self, path: str, root: str) -> bool:
        """Whether every directory entry from `root` down to `path` is durable."""
        current = PurePosixPath(path)
        while str(current) != root and current != current.parent:
            if str(current) not in self.durable_entries:
                return False
            current = current.parent
        return True

    def holds(self, path: str, start: int, end: int) -> bool:
        """Whether these bytes of the file are durable."""
        return any(first <= start and end <= last for first, last in self.durable.get(path, []))


Place = tuple[str, int, int]
"""(path, start, end) of bytes in a file."""


def violations(
    events: Iterable[Event], root: str, known: Iterable[str], places: Callable[[int], list[Place]]
) -> list[str]:
    """Every confirm that left before all it covers was durable.

    places(n): where the n-th message of the channel lies, one place per target queue.
    """
    durability = Durability(known)
    told = 0
    found = []
    for event in events:
        if event[0] != "confirm":
            durability.take(event)
            continue
        for number in range(told + 1, event[2] + 1):
            wanted = places(number)
            if not wanted:
                found.append(f"message {number} was confirmed and is in no file")
            for path, start, end in wanted:
                if not durability.holds(path, start, end):
                    found.append(f"message {number} was confirmed before {path} was synced")
                elif not durability.reachable(path, root):
                    found.append(f"message {number} was confirmed before {path} could be found")
        told = max(told, event[2])
    return found
