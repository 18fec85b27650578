"""Carries out steps on files (`broker.schema.file_steps`) through the store's own functions, so
that an observer of the broker's writes sees them too.

Each step can be repeated: steps that may or may not have been carried out are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from broker.schema.file_steps import Bring, Link, Remove, Step, Write
from broker.store.files import disk

PIECE = 256 * 1024
"""A file is copied in pieces of this size; between them the gate to the files can be shut."""

PART = ".part"
"""Ends the name of a file that is not whole yet."""


def carry(steps: Sequence[Step]) -> None:
    """Carries out steps, whose paths are absolute, in their order. All are on disk at the end, but
    for removals, which may come back after a power cut. Raises OSError; steps before that one are
    done then."""
    unsynced: set[str] = set()
    for step in steps:
        if isinstance(step, Bring | Link):
            _make_parent(step.target)
            _bring(step) if isinstance(step, Bring) else _link(step)
            unsynced.add(str(Path(step.target).parent))
            continue
        _sync(unsynced)
        if isinstance(step, Write):
            _make_parent(step.target)
            disk.write_atomic(step.target, step.data)
        elif isinstance(step, Remove):
            _remove(step.target)
    _sync(unsynced)


def _bring(step: Bring) -> None:
    part = step.target + PART
    try:
        disk.write_new(part, _pieces(step.source))
    except OSError:
        disk.unlink(part)
        raise
    disk.rename(part, step.target)


def _pieces(path: str) -> Iterator[bytes]:
    at = 0
    while piece := disk.read_part(path, at, PIECE):
        yield piece
        at += len(piece)


def _link(step: Link) -> None:
    disk.unlink(step.target)
    try:
        disk.link(step.source, step.target)
    except PermissionError:  # a file system without hard links
        _bring(Bring(step.source, step.target))


def _remove(path: str) -> None:
    if Path(path).is_dir():
        disk.remove_tree(path)
    else:
        disk.unlink(path)


def _make_parent(path: str) -> None:
    disk.makedirs(str(Path(path).parent))


def _sync(unsynced: set[str]) -> None:
    while unsynced:
        disk.sync_directory(unsynced.pop())
