"""Measures the turns of every event loop of a process, by the CPU time of its thread.

Python imports a module of this name at its start if the directory is on PYTHONPATH; `tests.turns`
puts it there for the processes of an appliance. A turn is what a loop does between two looks at its
sockets. LEVERET_TEST_TURNS names the directory for the figures: `<pid>.turns` as `FIGURES`, and
`<pid>.slow` with a line for each callback that took longer than `SLOW_NS`, and for each such turn
with its longest callbacks and walks of the garbage collector, which are part of a callback. On
SIGUSR2 a process looks for garbage: `<pid>.garbage` has a line for each type that was found in a
circle, with their number. From the first time on it collects none by itself, so that the next one
finds all that came between.
"""

import asyncio
import asyncio.events
import gc
import mmap
import os
import selectors
import signal
import struct
import sys
import threading
import time
import types
from collections import Counter
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
    parts: list[tuple[int, str]] = []
    """Callbacks of this turn above a twentieth of SLOW_NS."""

    def tell(line: str) -> None:
        with path.with_suffix(".slow").open("a") as file:
            file.write(line[:2000].replace("\n", " ") + "\n")

    select = selectors.EpollSelector.select
    run = asyncio.events.Handle._run  # type: ignore[attr-defined]
    make_loop = asyncio.SelectorEventLoop.__init__

    def note(turn: int, callback: int) -> None:
        slow, longest_turn, longest_callback = FIGURES.unpack_from(figures)
        FIGURES.pack_into(
            figures,
            0,
            slow + (turn > SLOW_NS),
            max(longest_turn, turn),
            max(longest_callback, callback),
        )

    def begin() -> None:
        begun.at = clock()

    def end() -> None:
        at = getattr(begun, "at", None)
        if at is not None and (took := clock() - at) > 1_000_000:
            note(took, 0)
            if took > SLOW_NS:
                longest = sorted(parts, reverse=True)[:5]
                told = "; ".join(f"{part / 1e6:.1f} ms {what}" for part, what in longest)
                tell(f"{took / 1e6:.1f} ms turn, {len(parts)} long callbacks: {told}")
        parts.clear()

    def measured_select(self: Any, timeout: Any = None) -> Any:
        end()
        ready = select(self, timeout)
        begin()
        return ready

    def measured_loop(self: Any, selector: Any = None) -> None:
        """The broker's selector ends turns itself, and tells of each look at its sockets."""
        make_loop(self, selector)
        sockets = getattr(selector, "sockets", None)
        if sockets is not None:
            sockets.looking = lambda begins: end() if begins else begin()

    def measured_run(self: Any) -> None:
        # A task's coroutine; afterwards a handle may have forgotten what it called.
        called = getattr(self._callback, "__self__", None)
        called = called.get_coro() if isinstance(called, asyncio.Task) else self._callback
        at = clock()
        run(self)
        took = clock() - at
        if took > 1_000_000:
            note(0, took)
        if took * 20 > SLOW_NS:
            parts.append((took, f"{called} {self!r}"[:300]))
        if took > SLOW_NS:
            tell(f"{took / 1e6:.1f} ms {called} {self!r}")

    def note_walk(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            begun.walk = clock()
        elif (took := clock() - getattr(begun, "walk", clock())) * 20 > SLOW_NS:
            walk = "a walk of the garbage collector, generation {generation}, {collected} collected"
            parts.append((took, walk.format_map(about)))

    gc.callbacks.append(note_walk)
    selectors.EpollSelector.select = measured_select  # type: ignore[method-assign]
    asyncio.events.Handle._run = measured_run  # type: ignore[attr-defined]
    asyncio.SelectorEventLoop.__init__ = measured_loop  # type: ignore[method-assign]


def find_garbage(directory: str) -> None:
    """On SIGUSR2 everything is walked over, and what is found is written down by type."""

    def name(each: Any) -> str:
        kind = f"{type(each).__module__}.{type(each).__qualname__}"
        code = getattr(each, "f_code", None)
        if isinstance(each, types.TracebackType):
            code = each.tb_frame.f_code
        return f"{kind} {getattr(code or each, '__qualname__', getattr(code, 'co_name', ''))}"

    def find(*_: Any) -> None:
        gc.disable()
        callbacks = gc.callbacks[:]
        gc.callbacks.clear()
        gc.unfreeze()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        found = Counter(name(each) for each in gc.garbage)
        gc.garbage.clear()
        gc.collect()
        gc.freeze()
        gc.callbacks.extend(callbacks)
        path = Path(directory) / f"{os.getpid()}.garbage"
        half = path.with_suffix(".half")
        half.write_text("".join(f"{count} {name}\n" for name, count in found.most_common()))
        half.rename(path)

    signal.signal(signal.SIGUSR2, find)


if os.environ.get("LEVERET_TEST_TURNS") and "manage.py" in " ".join(sys.orig_argv):
    measure(os.environ["LEVERET_TEST_TURNS"])
    find_garbage(os.environ["LEVERET_TEST_TURNS"])
