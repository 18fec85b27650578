"""Whether all that rounds write lies on the file system of the data directory.

One `syncfs` of the data directory stands for the syncs of all files of a round, and one sync of a
file for those of several (`broker.store.commit.direct_writes`). What lies on another file system
would be confirmed before it is on a disk. So a start looks for directories that a mount or a link
has put elsewhere, and refuses them. `quarantine` is one of them since queues are moved there.
Everything else in the data directory is synced by itself, or need not outlive the broker.

A queue has a directory, and to ask each of 100,000 takes the disk a second after a boot of the
machine. Links are known from the list of a directory, mounts from the list of the kernel.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from broker.store.files import disk

SYNCED = ("vhosts", "quarantine")
LEVELS = 3
"""In the longest paths of directories: vhost, what it has, queue."""

_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")


class TwoFileSystems(OSError):
    """A part of the data directory is on another file system."""


def check(directory: str) -> None:
    """Raises TwoFileSystems, or OSError where that cannot be found out."""
    places: list[str] = []
    for name in SYNCED:
        places += _links(f"{directory}/{name}", LEVELS)
    tops = [Path(directory).resolve() / name for name in SYNCED]
    tops += [Path(place).resolve() for place in places]
    mounts = [path for path in _mounts() if any(Path(path).is_relative_to(top) for top in tops)]
    check_these(directory, places + mounts)


def check_these(directory: str, paths: Iterable[str]) -> None:
    """`check` of these paths, as far as they exist."""
    device = Path(directory).stat().st_dev
    for path in paths:
        try:
            is_elsewhere = Path(path).stat().st_dev != device
        except FileNotFoundError:
            continue
        if is_elsewhere:
            raise TwoFileSystems(
                f"{path} is on another file system than the data directory {directory}, whose"
                " syncs do not reach it: move it there, or put the whole data directory on that"
                " file system"
            )


def _links(path: str, levels: int) -> Iterator[str]:
    """The path and those below it that are symbolic links, or lie behind one."""
    if Path(path).is_symlink():
        yield path
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if levels > 1 and entry.is_dir():
                    yield from _links(entry.path, levels - 1)
                elif entry.is_symlink():
                    yield entry.path
    except (FileNotFoundError, PermissionError):
        # As `lost+found`: the broker has no use for it either.
        return


def _mounts() -> list[str]:
    """Where file systems are mounted; nothing where the kernel does not tell."""
    try:
        lines = disk.read(_MOUNTS).splitlines()
    except OSError:
        return []
    return [os.fsdecode(_ESCAPED.sub(_unescaped, line.split()[4])) for line in lines]


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
