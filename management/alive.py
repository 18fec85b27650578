"""What the supervisor sees of the signs of life that a process gives (`broker.process.pulse`).

Times are not compared, only whether a sign came between two looks: a clock that jumps, or a machine
that slept, is no reason to kill.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

LOOK_S = 5.0
"""Seconds between two looks of the supervisor."""
READ_BYTES = 65_536  # all that a pipe holds


class Watch:
    """The supervisor's state of one run of a process, and the pipe of its signs. After `timeout`
    seconds without one it hangs. Raises OSError if there is no descriptor left."""

    def __init__(self, timeout: float) -> None:
        self._looks = math.ceil(timeout / LOOK_S)
        self._has_begun = False
        self._still = 0
        self.disk_told = False
        """The log says already that it waits for the disk."""
        self._read, self.write = os.pipe()
        """`write`: the end that the process gets."""
        os.set_blocking(self._read, False)
        os.set_blocking(self.write, False)

    def hangs(self) -> bool:
        """One look. A process that has given no sign yet is being started, however long it takes:
        reading a large store does."""
        try:
            came = bool(os.read(self._read, READ_BYTES))
        except BlockingIOError:
            came = False
        self._has_begun = self._has_begun or came
        self._still = 0 if came else self._still + 1
        self.disk_told = self.disk_told and not came
        return self._has_begun and self._still >= self._looks

    def handed_over(self) -> None:
        """The process has its end of the pipe, and this one needs it no more."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self) -> None:
        self.handed_over()
        os.close(self._read)


def waits_for_disk(pid: int) -> bool:
    """Whether a thread of the process waits in the kernel for a disk. A signal that kills has no
    effect until the disk has answered, and then the process can go on."""
    return any(_state(task) == "D" for task in _tasks(pid))


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _state(task: Path) -> str:
    try:
        stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""
    return stat.rpartition(")")[2].lstrip()[:1]
