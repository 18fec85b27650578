"""The state of the data directory at one instant, as hard links, while the broker works on.

Every file is either only appended to or replaced by another of its name, so a link and the length
it had are the state of a file. The links are made twice: once beside the traffic, which takes as
long as there are files, and again with the gate shut (`broker.store.files.gate`), when only what
changed since is linked and the lengths are noted. Holes would alter what is linked: none are made
until the snapshot goes. Nor are zeros put behind records (`broker.store.files.space_ahead`): those
that are there are cut before the lengths are noted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from broker.store.directory import last_mount
from broker.store.directory.identities import APPLIANCE, NODE
from broker.store.files import disk, gate, space_ahead

DIRECTORY = "snapshot"
"""Of the data directory; it goes with the snapshot, or at the next start."""

TREE = "tree"
LIST = "files"

SECRETS_KEY = "secrets_key"
LEFT_OUT = frozenset(
    {
        *("run", "lock", "control.sock", "reserve", last_mount.FILE),
        *(APPLIANCE, NODE, SECRETS_KEY, DIRECTORY),
        "lost+found",
    }
)
"""Names in a data directory that say nothing about another one, and the key of its secrets. What
starts on a copy is another appliance. `lost+found` is in the root of a volume, and root's."""

INCOMPLETE = "incomplete_backup"
"""A file that a copy has until it is whole."""


class Taken(NamedTuple):
    """What a snapshot holds. `still_s`: for how long nothing was written."""

    files: int
    bytes: int
    still_s: float


def take(directory: str) -> Taken:
    """Makes the snapshot of a data directory in its `snapshot/`: the links under `tree/`, and in
    `files` a line of JSON for each: path, length, mode; directories end with a slash. Raises
    OSError, and leaves nothing then."""
    place = f"{directory}/{DIRECTORY}"
    drop(directory)
    try:
        disk.makedirs(f"{place}/{TREE}")
        _mirror(directory, f"{place}/{TREE}")
        gate.hold_holes(True)
        with gate.shut():
            began = time.monotonic()
            space_ahead.give_all_back()
            _mirror(directory, f"{place}/{TREE}")
            rows = list(contents(f"{place}/{TREE}"))
            still_s = time.monotonic() - began
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        disk.append(f"{place}/{LIST}", lines.encode())
    except BaseException:
        drop(directory)
        raise
    return Taken(
        sum(not path.endswith("/") for path, _, _ in rows), sum(row[1] for row in rows), still_s
    )


def drop(directory: str) -> None:
    """Removes the snapshot, if there is one, and lets holes be made. Raises OSError."""
    gate.hold_holes(False)
    disk.remove_tree(f"{directory}/{DIRECTORY}")


def contents(tree: str, left_out: frozenset[str] = frozenset()) -> Iterator[tuple[str, int, int]]:
    """Path, length and mode of all in a directory but the names `left_out` at its top; directories
    come before what is in them."""
    waiting = [""]
    while waiting:
        place = waiting.pop()
        for entry in sorted(_entries(f"{tree}/{place}"), key=lambda entry: entry.name):
            if not place and entry.name in left_out:
                continue
            state = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{place}{entry.name}/")
                yield f"{place}{entry.name}/", 0, state.st_mode & 0o777
            elif entry.is_file(follow_symlinks=False):
                yield f"{place}{entry.name}", state.st_size, state.st_mode & 0o777


def _mirror(source: str, target: str) -> None:
    """Makes the target's files links to the source's and its directories the same."""
    waiting = [""]
    while waiting:
        place = waiting.pop()
        there = {entry.name: entry for entry in _entries(f"{target}/{place}")}
        names = set()
        # Other processes move usage from `usage` to `reports`: what is there already is not missed.
        for entry in sorted(_entries(f"{source}/{place}"), key=_reports_last):
            if not place and entry.name in LEFT_OUT:
                continue
            name = entry.name
            path = f"{target}/{place}{name}"
            if entry.is_dir(follow_symlinks=False):
                names.add(name)
                if name not in there:
                    Path(path).mkdir(entry.stat().st_mode & 0o777)
                waiting.append(f"{place}{name}/")
            elif entry.is_file(follow_symlinks=False):
                names.add(name)
                if name in there and there[name].inode() == entry.inode():
                    continue
                if name in there:
                    Path(path).unlink()
                # It may go at any moment, but for those that pass the gate.
                with contextlib.suppress(FileNotFoundError):
                    os.link(entry.path, path)
        for name in there.keys() - names:
            if there[name].is_dir(follow_symlinks=False):
                _remove(there[name].path)
            else:
                Path(there[name].path).unlink()


def _reports_last(entry: os.DirEntry[str]) -> tuple[bool, str]:
    return entry.name == "reports", entry.name


def _entries(path: str) -> list[os.DirEntry[str]]:
    """What is in a directory, nothing if it does not exist."""
    try:
        with os.scandir(path) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _remove(tree: str) -> None:
    for entry in _entries(tree):
        if entry.is_dir(follow_symlinks=False):
            _remove(entry.path)
        else:
            Path(entry.path).unlink()
    Path(tree).rmdir()
