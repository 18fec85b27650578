"""What the supervisor takes for a process that hangs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from management.alive import LOOK_S, Watch, beat

STILL_LOOKS = 6


def test_a_process_hangs_whose_file_stands_still_for_so_many_looks(tmp_path: Path) -> None:
    file, watch = tmp_path / "x.alive", Watch(STILL_LOOKS * LOOK_S)
    assert not any(watch.hangs(file) for _ in range(2 * STILL_LOOKS)), "it is being started"
    file.touch()
    assert [watch.hangs(file) for _ in range(STILL_LOOKS + 1)] == [False] * STILL_LOOKS + [True]


def test_a_clock_that_is_set_back_is_no_reason_to_kill(tmp_path: Path) -> None:
    file, watch = tmp_path / "x.alive", Watch(STILL_LOOKS * LOOK_S)
    for second in range(3 * STILL_LOOKS, 0, -1):
        file.touch()
        os.utime(file, (second, second))
        assert not watch.hangs(file)


def test_a_process_whose_loop_turns_gives_signs_of_life(tmp_path: Path) -> None:
    async def some() -> None:
        pulse = asyncio.create_task(beat(tmp_path / "x.alive"))
        await asyncio.sleep(0)
        pulse.cancel()

    asyncio.run(some())
    assert (tmp_path / "x.alive").exists()
