"""What is to come in time, on a machine that may be busy with something else."""

from __future__ import annotations

import contextlib
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any

TRIES = 20


class LateError(AssertionError):
    """It came too late, or the test was too slow to see it."""


def came_within(since: float, least: float, most: float) -> None:
    """Now is `least` to `most` seconds after `since`. Too early is an error at once; too late is
    one if it is so each time."""
    took = time.monotonic() - since
    assert took >= least, f"it came after {took:.3f} s, not after {least} s"
    if took >= most:
        raise LateError(f"it came after {took:.3f} s, not within {most} s")


def in_time(test: Callable[..., Any]) -> Callable[..., Any]:
    """Repeats a test for LateError: what is late by itself is late each time."""

    @functools.wraps(test)
    def repeated(*args: Any, **kwargs: Any) -> None:
        for _ in range(TRIES - 1):
            with contextlib.suppress(LateError):
                return test(*args, **kwargs)
        return test(*args, **kwargs)

    @functools.wraps(test)
    async def repeated_in_loop(*args: Any, **kwargs: Any) -> None:
        for _ in range(TRIES - 1):
            with contextlib.suppress(LateError):
                return await test(*args, **kwargs)
        return await test(*args, **kwargs)

    return repeated_in_loop if inspect.iscoroutinefunction(test) else repeated
