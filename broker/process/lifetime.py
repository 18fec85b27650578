"""The name a process was started by, and how it ends with its supervisor, even when that is killed.

The supervisor holds the writing end of a pipe and every child inherits the reading end. Nothing
is ever written: when the supervisor is gone, for whatever reason, the kernel closes the pipe and
the child stops as if it had been told to (SIGTERM), or is killed when that takes too long.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

VARIABLE = "LEVERET_LIFETIME_FD"
_orphaned = threading.Event()


def program() -> str:
    """What a person typed to run a command: `leveret` of an installed package, or `manage.py`."""
    name = Path(sys.argv[0]).name
    return name if name == "leveret" else "manage.py"


def is_supervised() -> bool:
    """Whether this process was started by a supervisor."""
    return VARIABLE in os.environ


def watch(stop_timeout: float) -> None:
    """End this process when the supervisor ends. Does nothing in a process started alone.

    SIGTERM first; after `stop_timeout` seconds SIGKILL, to the whole process group if this
    process leads one, so that children of its own go too.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return
    descriptor = int(text)
    os.set_inheritable(descriptor, False)
    watcher = threading.Thread(
        target=_wait, args=(descriptor, stop_timeout), name="lifetime", daemon=True
    )
    watcher.start()


def leave() -> None:
    """To be called last: if the supervisor is gone, take along what this process left running.

    A living supervisor does that itself. Does not return if it kills, for the group is its own.
    """
    if _orphaned.is_set() and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)


def _wait(descriptor: int, stop_timeout: float) -> None:
    while os.read(descriptor, 64):
        pass
    _orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(stop_timeout)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
