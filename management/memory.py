"""Gives memory of the web process back to the system after large answers; when the process is idle,
`broker.process.garbage` has it done."""

from __future__ import annotations

import asyncio

from broker.process.allocator import give_memory_back

LARGE = 1_000
"""Rows of an answer from which on its memory is worth the call."""

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
