"""Signs of life: a process of the appliance touches a file while its loop turns, and the supervisor
kills one whose file stands still.

Times are not compared, only whether the file has changed between two looks: a clock that jumps, or
a machine that slept, is no reason to kill.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

BEAT_S = 3.0
LOOK_S = 5.0
"""Seconds between two looks of the supervisor."""


def file_of(run_dir: Path, name: str) -> Path:
    """What the process of this name touches."""
    return run_dir / f"{name}.alive"


async def beat(file: Path) -> None:
    """Touches the file, without end. A full disk does not matter: nothing is written."""
    # The supervisor, which needs only `Watch`, starts without it: 20 ms and 5 MB.
    import asyncio

    while True:
        _touch(file)
        await asyncio.sleep(BEAT_S)


def _touch(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.touch(mode=0o600)
        os.utime(file)


class Watch:
    """The supervisor's state of one process. After `timeout` seconds without a sign it hangs."""

    def __init__(self, timeout: float) -> None:
        self._looks = math.ceil(timeout / LOOK_S)
        self._seen: int | None = None
        self._still = 0

    def hangs(self, file: Path) -> bool:
        """One look; a process that has not touched its file yet is being started."""
        try:
            changed = file.stat().st_mtime_ns
        except OSError:
            return False
        self._still = self._still + 1 if changed == self._seen else 0
        self._seen = changed
        return self._still >= self._looks
