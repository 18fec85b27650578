"""A small file system of a test's own, to fill up and to free again."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs of `size` bytes at `path`. Skips the test where mounting is not allowed."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here")
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")

    @property
    def free(self) -> int:
        state = os.statvfs(self.path)
        return state.f_bavail * state.f_frsize

    @property
    def filler(self) -> Path:
        """The other file that takes the space."""
        return self.path / "filler"

    def fill(self, leave: int = 0) -> None:
        """Takes all space but `leave` bytes with another file. What others give back meanwhile, as
        a broker does with its reserve, is theirs."""
        more = self.free - leave
        with self.filler.open("ab") as file:
            misses = 0
            while more > 0 and misses < 20:
                before = file.tell()
                try:
                    os.posix_fallocate(file.fileno(), before, max(4096, more >> misses))
                except OSError:
                    # Others write meanwhile.
                    misses += 1
                more -= file.seek(0, os.SEEK_END) - before

    def clear(self) -> None:
        """Takes the other file away."""
        self.filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)
