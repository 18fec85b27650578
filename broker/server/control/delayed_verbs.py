"""Looking at the messages that an exchange holds back, and cancelling them."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from broker.fields.codec import octets, text
from broker.fields.properties import readable
from broker.schema.arguments import DELAYS
from broker.schema.control_schema import ExchangeDelayed, ExchangeDelayedCancel
from broker.schema.errors import NotFound, describe
from broker.server.control.requests import Request, bad_request, handles, not_found
from broker.server.pace import Pace

COUNT_MAX = 500
SEARCHED_MAX = 5_000
_STEP = 250
_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,10})-([0-9]{1,10})\Z", re.ASCII)


def _holding(request: Request[Any], permission: str) -> Any:
    if not DELAYS:
        raise not_found("this broker holds no messages back")
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    caller.check(vhost.name, permission, "exchange", args.name)
    exchange = vhost.exchanges.get(args.name)
    if exchange is None:
        raise NotFound(f"no {describe('exchange', args.name, vhost.name)}")
    return exchange.holding


def _place(id: str) -> tuple[int, int, int]:
    match = _ID.match(id)
    if match is None:
        raise bad_request(f"'{id[:100]}' is no id of a delayed message: expected N-N-N")
    due, segment, position = map(int, match.groups())
    return due, segment, position


@handles("exchange.delayed")
async def exchange_delayed(request: Request[ExchangeDelayed]) -> Any:
    args = request.args
    holding = _holding(request, "read")
    if not 1 <= args.count <= COUNT_MAX:
        raise bad_request(f"count must be from 1 to {COUNT_MAX}")
    after = (-1, 0, 0) if args.after is None else _place(args.after)
    if args.due_from is not None:
        after = max(after, (args.due_from, -1, 0))
    wanted = octets(args.routing_key)
    if holding is None:
        return {"items": [], "searched": 0, "next": None}
    browser = holding.browse(after=after, until=args.due_until)
    items: list[dict[str, Any]] = []
    searched = 0
    pace = Pace()
    while searched < SEARCHED_MAX and len(items) < args.count:
        entries = await asyncio.to_thread(browser.next_entries, _STEP)
        if browser.is_stale:
            browser = holding.browse(after=after, until=args.due_until)
            continue
        if not entries:
            return {"items": items, "searched": searched, "next": None}
        waiting = browser.waiting(entries)
        for each in await asyncio.to_thread(browser.read, waiting):
            if wanted in each.routing_key:
                items.append(
                    {
                        "id": "-".join(map(str, each.entry.place)),
                        "due": each.entry.due,
                        "routing_key": text(each.routing_key),
                        "payload_bytes": each.entry.body_length,
                        "properties": readable(each.listed),
                    }
                )
                if len(items) == args.count:
                    after = each.entry.place
                    break
            await pace()
        else:
            after = entries[-1].place
        searched += sum(entry.place <= after for entry in entries)
    return {"items": items, "searched": searched, "next": "-".join(map(str, after))}


@handles("exchange.delayed.cancel")
async def exchange_delayed_cancel(request: Request[ExchangeDelayedCancel]) -> Any:
    holding = _holding(request, "configure")
    due, segment, position = place = _place(request.args.id)
    while holding is not None:
        browser = holding.browse(after=(due, segment, position - 1), until=due)
        entries = await asyncio.to_thread(browser.next_entries, 1)
        if browser.is_stale:
            continue
        if not entries or entries[0].place != place:
            break
        # The record is what the index says it is, and still waits when that is known.
        found = await asyncio.to_thread(browser.read, browser.waiting(entries))
        if browser.is_stale:
            continue
        if not found or not browser.waiting(entries):
            break
        holding.cancel(segment, position, entries[0].length, entries[0].body_length)
        return {}
    raise not_found("no such delayed message: it was released or cancelled")
