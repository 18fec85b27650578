"""Signs of life: a process of the appliance writes a byte into a pipe while its loop turns, and the
supervisor, which reads the pipe, ends a process from which no more bytes come.

The pipe is in memory and never waits: a disk that does not answer is not taken for a process that
hangs, and a full pipe (the supervisor itself stands still) holds up nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

VARIABLE = "LEVERET_PULSE_FD"
BEAT_S = 3.0


def begin(later: Callable[[float, Callable[[], None]], object]) -> None:
    """Beat from now on. `later` calls a function after so much time, in seconds, from the loop
    whose turning is to be shown. Does nothing in a process started alone."""
    # Taken away: in a process that this one starts the number belongs to another file.
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return
    descriptor = int(text)
    os.set_inheritable(descriptor, False)

    def beat() -> None:
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0")
        later(BEAT_S, beat)

    beat()
