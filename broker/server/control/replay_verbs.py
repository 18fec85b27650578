"""Verbs on replays: messages of a stream are handed over once more, a range or what was found."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.fields.codec import octets
from broker.schema.control_schema import TransferReplay
from broker.schema.errors import describe
from broker.server.control.requests import Request, bad_request, handles
from broker.server.control.stream_searches import Asked, search
from broker.server.control.stream_verbs import browsed, stream_of
from broker.server.control.transfer_verbs import (
    bounds_of,
    check_target,
    filter_of,
    transfers_of,
)

OFFSET_MAX = 2**62

_BY_TIME = {"first_offset": "first", "last_offset": "last"}


class _Picked(NamedTuple):
    """Which messages are replayed: all from `begin` up to before `end`, or only those `offsets`."""

    begin: int
    end: int
    offsets: list[int] | None = None
    search: str | None = None
    reasons: list[str] = []


@handles("transfer.replay")
async def transfer_replay(request: Request[TransferReplay]) -> Any:
    args, caller = request.args, request.caller
    transfers = transfers_of(request)
    vhost, queue = stream_of(request)
    target_vhost, target = check_target(caller, args, queue)
    wanted = {
        **filter_of(args.routing_key, args.header, args.header_value, "header_value"),
        **bounds_of(args),
    }
    if args.offsets is not None:
        picked = _named(request, queue)
    elif args.value is None:
        if args.key is not None:
            raise bad_request("a search needs a 'value', too")
        picked = await _range(queue, args)
    else:
        picked = await _found(request, vhost, queue)
    transfer = transfers.begin(
        queue,
        picked.end,
        user=caller.user.name if caller.user is not None else None,
        mode="replay",
        target_vhost=target_vhost,
        target=target,
        target_type=args.target_type,
        begin=picked.begin,
        offsets=picked.offsets,
        search=picked.search,
        record=args.record,
        **wanted,
    )
    return {**transfer.shown(), "complete": not picked.reasons, "reasons": picked.reasons}


def _check_offsets(args: TransferReplay) -> tuple[int, int]:
    """The first offset, and the one behind the last. Raises RequestError."""
    for name, by_time in _BY_TIME.items():
        offset = getattr(args, name)
        if offset is not None and not 0 <= offset < OFFSET_MAX:
            raise bad_request(f"{name} must be from 0 to {OFFSET_MAX - 1}")
        if args.value is None and offset is not None and getattr(args, by_time) is not None:
            raise bad_request(f"a range has an offset or a time: '{name}' or '{by_time}'")
    begin = args.first_offset or 0
    end = OFFSET_MAX if args.last_offset is None else args.last_offset + 1
    if begin >= end:
        raise bad_request("the range of offsets ends before it begins")
    return begin, end


def _named(request: Request[TransferReplay], queue: Any) -> _Picked:
    """The messages that `offsets` names. Raises RequestError."""
    args, most = request.args, request.broker.config.stream_search_results_max
    if any(getattr(args, name) is not None for name in ("value", *_BY_TIME, *_BY_TIME.values())):
        raise bad_request("a replay has 'offsets', or a range and a search")
    offsets = sorted(set(args.offsets or ()))
    if not 1 <= len(offsets) <= most:
        raise bad_request(f"offsets must be from 1 to {most} (stream_search_results_max)")
    figures = queue.stream_figures()
    if offsets[0] < figures["first_offset"] or offsets[-1] >= figures["next_offset"]:
        raise bad_request(
            f"{describe('queue', queue.name, queue.vhost_name)} has the offsets from "
            f"{figures['first_offset']} to {figures['next_offset'] - 1}"
        )
    return _Picked(offsets[0], offsets[-1] + 1, offsets, f"{len(offsets)} offsets")


async def _range(queue: Any, args: TransferReplay) -> _Picked:
    begin, end = _check_offsets(args)
    if None not in (args.first, args.last):
        assert args.first is not None and args.last is not None
        if args.first > args.last:
            raise bad_request("the range of time ends before it begins")
    if args.first is not None:
        begin = await _offset_at(queue, args.first)
    if args.last is not None:
        end = min(end, await _offset_at(queue, args.last + 1))
    return _Picked(begin, end)


async def _offset_at(queue: Any, time_ms: int) -> int:
    """Of the first message that the stream got at this time or later."""
    rows = await browsed(queue, queue.start_at(time_ms), 1, 1)
    return int(rows[0][0] if rows else queue.stream_figures()["next_offset"])


async def _found(request: Request[TransferReplay], vhost: Any, queue: Any) -> _Picked:
    args = request.args
    begin, end = _check_offsets(args)
    most = request.broker.config.stream_search_results_max if args.max is None else args.max
    asked = Asked(args.key, octets(args.value or ""), args.first, args.last, most)
    found = await search(request.broker, vhost, queue, asked)
    offsets = [message.offset for message in found.answer.messages if begin <= message.offset < end]
    if not offsets:
        where = describe("queue", queue.name, vhost.name)
        reasons = "; ".join(found.answer.reasons)
        raise bad_request(
            f"no message of {where} has this key in this range"
            + (f": {reasons}" if reasons else "")
        )
    text = f"{found.key}={args.value}"
    return _Picked(min(offsets), max(offsets) + 1, offsets, text, found.answer.reasons)
