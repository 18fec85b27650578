"""The states that a power cut can leave, enumerated from a recording of the store's operations.

A file's bytes and a directory's entries are on disk when a sync that covers them has ended; of
everything else any part may be: each write, cut at any byte, each entry made, renamed or removed.
Nothing is assumed of the order in which the file system writes what was not synced.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512

Event = tuple[str, str | None, int, int, int]
"""(kind, path, offset or number, length, errno), as `broker.store.files.disk.recorded` gives
them."""

State = dict[str, bytes | None]
"""Path -> content of a file, None for a directory."""


@dataclass
class Inode:
    """A file, or a directory with its `entries` on disk. `content` is what is on disk of a file."""

    content: bytes = b""
    is_directory: bool = False
    entries: dict[str, Inode] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)


@dataclass(eq=False)
class Change:
    """Something that is not yet on disk. Of a file: `kind` write, truncate or punch. Of a
    directory: name `name` becomes `inode` (None: is gone), and `old` is gone with it."""

    kind: str
    offset: int = 0
    data: bytes = b""
    name: str = ""
    inode: Inode | None = None
    old: str = ""


def changed(content: bytes, change: Change, keep: int | None = None) -> bytes:
    """A file's content after a change, of which `keep` bytes are done (all)."""
    if change.kind == "truncate":
        return content[: change.offset].ljust(change.offset, b"\0")
    data = change.data if keep is None else change.data[:keep]
    if change.kind == "punch":
        data = bytes(len(data))
    if not data:
        return content
    return (
        content[: change.offset].ljust(change.offset, b"\0")
        + data
        + content[change.offset + len(data) :]
    )


class CrashDisk:
    """The disk below `root` as a recording fills it. `root` is there from the start."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.top = Inode(is_directory=True)
        self.live: dict[str, Inode] = {root: self.top}

    # -- taking a recording ------------------------------------------------------------------------

    def take(self, event: Event, data: bytes | None) -> None:
        """One operation that ended."""
        kind, path, offset, length, error = event
        if error or path is None or not path.startswith(self.root):
            return
        if kind == "mkdir":
            if path not in self.live:
                self._enter(path, Inode(is_directory=True))
        elif kind == "open":
            self._file(path)
        elif kind == "write":
            self._file(path).pending.append(Change("write", offset, data or b""))
        elif kind == "write_file":
            self._file(path).pending += [Change("truncate"), Change("write", 0, data or b"")]
        elif kind == "truncate":
            self._file(path).pending.append(Change("truncate", length))
        elif kind == "punch":
            self._file(path).pending.append(Change("punch", offset, bytes(length)))
        elif kind in ("sync", "sync_directory"):
            # What was removed meanwhile may still be open; it comes back after no crash.
            if path in self.live:
                self._sync(self.live[path])
        elif kind == "sync_file_system":
            for inode in list(self.live.values()):
                self._sync(inode)
        elif kind in ("unlink", "rmdir"):
            if self.live.pop(path, None) is not None:
                self._change(path, Change("entry", name=name_of(path)))
        elif kind == "link":
            self._enter(path, self.live[os.fsdecode(data or b"")])
        elif kind == "rename":
            old = os.fsdecode(data or b"")
            inode = self.live.pop(old)
            self.live[path] = inode
            name = name_of(path)
            change = Change("entry", name=name, inode=inode, old=name_of(old))
            self._change(path, change)

    def _file(self, path: str) -> Inode:
        if path not in self.live:
            self._enter(path, Inode())
        return self.live[path]

    def _enter(self, path: str, inode: Inode) -> None:
        self.live[path] = inode
        self._change(path, Change("entry", name=name_of(path), inode=inode))

    def _change(self, path: str, change: Change) -> None:
        self.live[path.rpartition("/")[0]].pending.append(change)

    def _sync(self, inode: Inode) -> None:
        for change in inode.pending:
            self._apply(inode, change)
        inode.pending = []

    @staticmethod
    def _apply(inode: Inode, change: Change) -> None:
        if not inode.is_directory:
            inode.content = changed(inode.content, change)
        else:
            _entered(inode.entries, change)

    # -- states ------------------------------------------------------------------------------------

    def pending(self) -> list[Change]:
        """What is not on disk, in the order of its making within each file and directory."""
        return [change for inode in self._reachable() for change in inode.pending]

    def _reachable(self) -> list[Inode]:
        """Inodes that some state can reach."""
        found, waiting = [], [self.top]
        seen: set[int] = set()
        while waiting:
            inode = waiting.pop()
            if id(inode) in seen:
                continue
            seen.add(id(inode))
            found.append(inode)
            if inode.is_directory:
                waiting += inode.entries.values()
                waiting += [each.inode for each in inode.pending if each.inode is not None]
        return found

    def state(self, kept: set[Change], cut: Change | None = None, at: int = 0) -> State:
        """What is on disk if of the pending changes just `kept` got there, and of one write `cut`
        the first `at` bytes."""
        state: State = {}
        waiting = [(self.root, self.top)]
        while waiting:
            path, inode = waiting.pop()
            if inode.is_directory:
                state[path] = None
                entries = dict(inode.entries)
                for change in inode.pending:
                    if change in kept:
                        _entered(entries, change)
                waiting += [(f"{path}/{name}", child) for name, child in entries.items()]
            else:
                content = inode.content
                for change in inode.pending:
                    if change is cut:
                        content = changed(content, change, at)
                    elif change in kept:
                        content = changed(content, change)
                state[path] = content
        return state

    def states(self, chance: random.Random, samples: int = 3) -> Iterator[tuple[str, State]]:
        """States of this moment with what makes each: all done (as after kill -9), nothing done,
        each change alone done or missing, writes cut, and `samples` mixtures."""
        pending = self.pending()
        everything = set(pending)
        yield "all", self.state(everything)
        if not pending:
            return
        yield "none", self.state(set())
        for number, change in enumerate(pending):
            yield f"without {number}", self.state(everything - {change})
            if len(pending) > 1:
                yield f"only {number}", self.state({change})
            if change.kind == "write" and len(change.data) > 1:
                places = {chance.randrange(1, len(change.data))}
                edges = range(-change.offset % SECTOR or SECTOR, len(change.data), SECTOR)
                places |= set(itertools.islice(edges, 2))
                for at in sorted(places):
                    yield f"{number} cut at {at}", self.state(everything - {change}, change, at)
        for _ in range(samples if len(pending) > 2 else 0):
            kept = {change for change in pending if chance.random() < 0.5}
            yield "mixture", self.state(kept)


def _entered(entries: dict[str, Inode], change: Change) -> None:
    if change.old:
        entries.pop(change.old, None)
    if change.inode is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.inode


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def lay_out(state: State, root: str, target: Path) -> None:
    """Writes a state whose root is `root` below `target`, which is new."""
    for path in sorted(state):
        content = state[path]
        place = Path(f"{target}{path[len(root) :]}")
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)
