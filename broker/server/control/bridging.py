"""What the verbs on shovels and on links of federation have in common: waiting for news, and for
the answer to a trial."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from broker.features.news import News
from broker.features.trials import TooManyTrials
from broker.server.control.requests import RequestError

TEST_TIMEOUT_S = 60.0
FOLLOW_MAX_S = 60.0
NEWS_AT_ONCE = 200
"""Definitions in one answer; a turn of the broker makes no more of them."""


async def changed(news: News, wait_s: float) -> bool:
    """Waits for the next change; whether there was one."""
    found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not found.done():
            found.set_result(None)

    news.waiting.append(wake)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(wait_s, FOLLOW_MAX_S)):
                await found
                return True
    finally:
        if wake in news.waiting:
            news.waiting.remove(wake)
    return False


async def tried(feature: Any, ask: Callable[[Callable[[list[Any]], None]], int]) -> list[Any]:
    """The steps that the process `bridges` found for a definition. Raises RequestError if it does
    not answer, or if too many are being tried."""
    found: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def answer(steps: list[Any]) -> None:
        if not found.done():
            found.set_result(steps)

    try:
        id = ask(answer)
    except TooManyTrials as error:
        raise RequestError("busy", f"{error}; try again") from None
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            return await found
    except TimeoutError:
        raise RequestError(
            "busy", "the process that runs shovels and links has not answered; try again"
        ) from None
    finally:
        feature.end_test(id)
