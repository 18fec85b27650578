"""The broker comes first: the other parts run at a lower priority of the kernel (nice).

Where the kernel shares processors out between sessions (`sched_autogroup_enabled`), a nice value
counts only among the processes of one session, and each part has a session of its own. The session
has a nice value for that, in `/proc/<pid>/autogroup`. sched(7).
"""

import contextlib
import errno
import os
import time
from pathlib import Path

_TRIES = 10
_AGAIN_AFTER_S = 0.05


def give_way(steps: int) -> None:
    """Puts this thread, the threads and processes it will start, and its session if it has one of
    its own, this number of nice steps lower. Lowering a priority needs no privilege."""
    if steps:
        with contextlib.suppress(OSError):
            os.nice(steps)
        _put_session_behind(steps)


def give_way_as_parent() -> None:
    """Puts a new session as far behind as that of the process which started it; the process is
    so by itself."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        steps = int(Path(f"/proc/{os.getppid()}/autogroup").read_text().split()[-1])
        if steps > 0:
            _put_session_behind(steps)


def _put_session_behind(steps: int) -> None:
    if os.getsid(0) != os.getpid():
        return  # others are in it, perhaps the broker
    for _ in range(_TRIES):
        try:
            Path("/proc/self/autogroup").write_text(str(steps))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return  # no such groups, or none that can be changed here
            # The kernel takes one such change in 0.1 s of all users without privileges.
            time.sleep(_AGAIN_AFTER_S)
        else:
            return
