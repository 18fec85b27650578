"""Verbs on tiers: where segments of streams are, and whose the object store is."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.schema.control_schema import TiersAdopt, TiersShow
from broker.schema.tier_work import Answer
from broker.server.control.requests import Request, RequestError, handles, not_found

ANSWER_TIMES = 3
"""How many times `tier_timeout` a change of the owner may take: it is read and written."""


def _tiers(request: Request[Any]) -> Any:
    if request.broker.tiers is None:
        raise not_found("this broker has no tiers")
    return request.broker.tiers


@handles("tiers")
async def tiers_show(request: Request[TiersShow]) -> Any:
    return _tiers(request).figures()


@handles("tiers.adopt")
async def tiers_adopt(request: Request[TiersAdopt]) -> Any:
    tiers = _tiers(request)
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def adopted(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    tiers.adopt(adopted)
    try:
        async with asyncio.timeout(ANSWER_TIMES * request.broker.config.tier_timeout):
            answer = await answered
    except TimeoutError:
        raise RequestError("unavailable", "the tiers process does not answer") from None
    if answer.fault:
        raise RequestError("unavailable", answer.problem)
    return tiers.figures()
