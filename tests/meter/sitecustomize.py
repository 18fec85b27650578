"""Measures the turns of every event loop of a process, by the CPU time of its thread.

Python imports a module of this name at its start if the directory is on PYTHONPATH; `tests.turns`
puts it there for the processes of an appliance. A turn is what a loop does between two looks at its
sockets. LEVERET_TEST_TURNS names the directory for the figures: `<pid>.turns` as `FIGURES`, and
`<pid>.slow` with a line for each callback that took longer than `SLOW_NS`.
"""

import asyncio
import asyncio.events
import mmap
import os
import selectors
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

FIGURES = struct.Struct("=QQQ")
"""Turns above SLOW_NS, the longest turn and the longest callback, both in ns."""
SLOW_NS = 10_000_000


def measure(directory: str) -> None:
    """Figures of this process go to files in `directory` from now on."""
    path = Path(directory) / f"{os.getpid()}.turns"
    with path.open("w+b") as file:
        file.write(bytes(FIGURES.size))
        file.flush()
        figures = mmap.mmap(file.fileno(), FIGURES.size)
    clock = time.thread_time_ns
    begun = threading.local()
    select = selectors.EpollSelector.select
    run = asyncio.events.Handle._run  # type: ignore[attr-defined]

    def note(turn: int, callback: int) -> None:
        slow, longest_turn, longest_callback = FIGURES.unpack_from(figures)
        FIGURES.pack_into(
            figures,
            0,
            slow + (turn > SLOW_NS),
            max(longest_turn, turn),
            max(longest_callback, callback),
        )

    def measured_select(self: Any, timeout: Any = None) -> Any:
        at = getattr(begun, "at", None)
        if at is not None and (took := clock() - at) > 1_000_000:
            note(took, 0)
        ready = select(self, timeout)
        begun.at = clock()
        return ready

    def measured_run(self: Any) -> None:
        # A task's coroutine; afterwards a handle may have forgotten what it called.
        called = getattr(self._callback, "__self__", None)
        called = called.get_coro() if isinstance(called, asyncio.Task) else self._callback
        at = clock()
        run(self)
        took = clock() - at
        if took > 1_000_000:
            note(0, took)
        if took > SLOW_NS:
            with path.with_suffix(".slow").open("a") as file:
                text = f"{took / 1e6:.1f} ms {called} {self!r}"
                file.write(text[:2000].replace("\n", " ") + "\n")

    selectors.EpollSelector.select = measured_select  # type: ignore[method-assign]
    asyncio.events.Handle._run = measured_run  # type: ignore[attr-defined]


if os.environ.get("LEVERET_TEST_TURNS") and "manage.py" in " ".join(sys.orig_argv):
    measure(os.environ["LEVERET_TEST_TURNS"])
