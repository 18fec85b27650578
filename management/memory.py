"""Gives memory of the web process back to the system: after large answers, and when it is idle."""

from __future__ import annotations

import asyncio
import gc
import time

from broker.garbage import give_memory_back

LARGE = 1_000
"""Rows of an answer from which on its memory is worth the call."""

LOOK_S = 5.0
"""Seconds between two looks whether the process is idle."""
IDLE_SHARE = 0.03
"""Of a core; a process that takes less serves hardly anybody."""

_AFTER_S = 5.0
_waiting: set[asyncio.Task[None]] = set()


def give_back_soon() -> None:
    """Has the C library return free memory a few seconds from now, once for all who asked until
    then: what large answers held stays with the process otherwise."""
    if not _waiting:
        task = asyncio.get_running_loop().create_task(_give_back(), name="memory given back")
        _waiting.add(task)
        task.add_done_callback(_waiting.discard)


async def _give_back() -> None:
    await asyncio.sleep(_AFTER_S)
    await asyncio.to_thread(give_memory_back)


class Idleness:
    """Notices that the process has nothing to do after it had."""

    def __init__(self) -> None:
        self._busy_s = time.process_time()
        self._has_worked = True  # the start took memory too

    def began(self) -> bool:
        """Asked every LOOK_S; True once when it is idle, until it has worked again."""
        busy_s = time.process_time()
        is_idle = busy_s - self._busy_s < IDLE_SHARE * LOOK_S
        self._busy_s = busy_s
        began = is_idle and self._has_worked
        self._has_worked = not is_idle
        return began


async def give_back_when_idle() -> None:
    """What requests left in circles, and what the C library keeps of freed memory: without this a
    process that was flooded once keeps most of what it took. What is there at the start is no
    garbage and is never looked at."""
    gc.collect()
    gc.freeze()
    idleness = Idleness()
    while True:
        await asyncio.sleep(LOOK_S)
        if idleness.began():
            gc.collect()
            await asyncio.to_thread(give_memory_back)
