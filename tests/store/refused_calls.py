"""Large rounds in a process whose calls of `fallocate` are refused, as guards of containers do.

`python -m tests.store.refused_calls DIRECTORY ERRNO` prints how the broker's disk failed ("None" if
it did not) and how many messages came back after all. It ends with `NO_FILTER` where a process may
not have its calls refused.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

from tests.inner import space_ahead_after
from tests.store.driven import Driven

NO_FILTER = 77
ROUNDS = 40
MESSAGES = 20
BODY = b"x" * 10_000

_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_CALLS = {"x86_64": (0xC000003E, 285), "aarch64": (0xC00000B7, 47)}
"""Of linux/audit.h and asm/unistd.h: the architecture, and `fallocate` in it."""


def refuse_fallocate(error: int) -> bool:
    """From now on the call fails with this errno, in this thread and those that it starts. False if
    that cannot be had here."""
    if os.uname().machine not in _CALLS:
        return False
    architecture, call = _CALLS[os.uname().machine]
    # Of linux/filter.h; `seccomp_data` has the call's number at 0 and the architecture at 4.
    steps = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 0, 2, architecture),
        (_LOAD, 0, 0, 0),
        (_JUMP_EQUAL, 1, 0, call),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | error),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    filter_of_it = struct.pack("@HP", len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None)
    return not (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        or libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, filter_of_it, 0, 0)
    )


def main(directory: Path, error: int) -> int:
    if not refuse_fallocate(error):
        return NO_FILTER
    space_ahead_after(16, 3_600_000_000_000)
    driven = Driven(directory, segment_size=64 << 20)
    for _ in range(ROUNDS):
        for _ in range(MESSAGES):
            driven.publish(BODY)
            # Only what consumers have read already goes past the page cache, into space ahead.
            driven.queue.store.keep = True
            driven.take()
        driven.sync()
        if driven.failed:
            break
    print(driven.failed)
    driven.kill()
    again = Driven(directory, segment_size=64 << 20)
    again.recover()
    print(len(again.drain()))
    again.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
