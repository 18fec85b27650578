"""The verbs `list` and `item`: rows of any noun, filtered, sorted and paged.

Work goes in short steps, so that 100,000 queues hold up nobody; only the rows of the page are
built.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import msgspec

from broker.access.patterns import BadPattern, Pattern
from broker.columns import chosen, value_at
from broker.control_schema import NOUNS, Item, List
from broker.server.control import troubles
from broker.server.control.access_rows import (
    GlobalParameters,
    Parameters,
    Permissions,
    TopicPermissions,
    UserLimits,
    Users,
    VHostLimits,
    VHosts,
)
from broker.server.control.binding_rows import Bindings
from broker.server.control.connection_rows import Channels, Connections, Consumers
from broker.server.control.encoding import Pace, encode_rows
from broker.server.control.policy_rows import OperatorPolicies, Policies
from broker.server.control.queue_rows import Exchanges, Queues
from broker.server.control.requests import Request, RequestError, bad_request, handles
from broker.server.control.views import View

PAGE_SIZE_MAX = 500

VIEWS: dict[str, type[View]] = {
    "queues": Queues,
    "exchanges": Exchanges,
    "bindings": Bindings,
    "connections": Connections,
    "channels": Channels,
    "consumers": Consumers,
    "vhosts": VHosts,
    "users": Users,
    "permissions": Permissions,
    "topic-permissions": TopicPermissions,
    "vhost-limits": VHostLimits,
    "user-limits": UserLimits,
    "global-parameters": GlobalParameters,
    "parameters": Parameters,
    "policies": Policies,
    "operator-policies": OperatorPolicies,
}

_CHUNK = 500


@handles("list")
async def list_noun(request: Request[List]) -> Any:
    """Answers verb `list`."""
    args = request.args
    noun = NOUNS.get(args.noun)
    if noun is None:
        raise bad_request(f"noun '{args.noun[:100]}' does not exist")
    request.caller.require(noun.list_tag)
    _check_page(args)
    view = VIEWS[args.noun](request.broker)
    pace = Pace()
    matches = _name_filter(args)
    total = 0
    things = []
    for thing in view.all(request.caller, args):
        total += 1
        if (matches is None or matches(view.name(thing))) and _in_state(view, thing, args.state):
            things.append(thing)
        await pace()
    count = len(things)
    first, last = 0, count
    page_count = 1
    if args.page is not None:
        # Of an empty list there is a first page and no page to count, as in RabbitMQ.
        page_count = -(-count // args.page_size)
        if args.page > max(1, page_count):
            reason = (
                f"Page out of range, page: {args.page} page size: {args.page_size}, len: {count}"
            )
            raise RequestError("page_out_of_range", reason)
        first = (args.page - 1) * args.page_size
        last = first + args.page_size
    things = await _sorted(view, things, args, last, pace)
    rows = (chosen(view.row(thing, args), args.columns) for thing in things[first:last])
    items = await encode_rows(rows)
    return {
        "items": items,
        "item_count": len(things[first:last]),
        "filtered_count": count,
        "total_count": total,
        "page": args.page or 1,
        "page_count": page_count,
        "page_size": args.page_size if args.page is not None else count,
    }


@handles("item")
async def item(request: Request[Item]) -> Any:
    """Answers verb `item`."""
    args = request.args
    noun = NOUNS.get(args.noun)
    if noun is None:
        raise bad_request(f"noun '{args.noun[:100]}' does not exist")
    request.caller.require(noun.item_tag)
    missing = [key for key in noun.key if "." not in key and getattr(args, key) is None]
    if missing:
        raise bad_request(f"item of {args.noun}: {' and '.join(missing)} missing")
    view = VIEWS[args.noun](request.broker)
    return view.item(view.find(request.caller, args), args)


def find_by_key(broker: Any, caller: Any, noun: str, key: list[str]) -> tuple[View, Any]:
    """The view and the thing that a row key names. Raises RequestError if there is none."""
    fields = NOUNS[noun].key
    if len(key) != len(fields):
        raise bad_request(f"a key of {noun} is [{', '.join(fields)}]")
    caller.require(NOUNS[noun].list_tag)
    view = VIEWS[noun](broker)
    if noun == "consumers":
        channel = Channels(broker).find(caller, Item(noun="channels", name=key[0]))
        consumer = channel.consumers.get(key[1])
        if consumer is None:
            raise RequestError("not_found", "Not Found")
        return view, consumer
    named = {"noun": noun, **dict(zip(fields, key, strict=True))}
    return view, view.find(caller, msgspec.convert(named, Item))


def _check_page(args: List) -> None:
    if args.page is None:
        return
    if args.page < 1 or not 1 <= args.page_size <= PAGE_SIZE_MAX:
        reason = (
            f"Invalid pagination parameters: page number {args.page}, page size {args.page_size}; "
            f"a page size is 1 to {PAGE_SIZE_MAX}"
        )
        raise RequestError("invalid_pagination_parameters", reason)


def _name_filter(args: List) -> Callable[[str], bool] | None:
    wanted = args.name
    if not wanted:
        return None
    if not args.use_regex:
        return lambda name: wanted in name
    try:
        return Pattern(wanted).matches
    except BadPattern as error:
        raise RequestError("invalid_pagination_parameters", str(error)) from None


def _in_state(view: View, thing: Any, state: str | None) -> bool:
    if state is None:
        return True
    word = view.trouble(thing)
    return word in troubles.WORRYING if state == "trouble" else word == state


async def _sorted(view: View, things: list[Any], args: List, enough: int, pace: Pace) -> list[Any]:
    """The first `enough` things in the wanted order: chunks sorted one by one, then merged."""
    key = view.sort_key(args.sort) if args.sort else view.order
    if key is None:
        parts = (args.sort or "").split(".")
        key = lambda thing: value_at(view.row(thing, args), parts)  # noqa: E731
    decorated = []
    for place, thing in enumerate(things):
        decorated.append((_orderable(key(thing)), place))
        await pace()
    chunks = []
    for start in range(0, len(decorated), _CHUNK):
        chunk = decorated[start : start + _CHUNK]
        chunk.sort(reverse=args.sort_reverse)
        chunks.append(chunk)
        await pace()
    ordered = []
    for _, place in heapq.merge(*chunks, reverse=args.sort_reverse):
        ordered.append(things[place])
        if len(ordered) >= enough:
            break
        await pace()
    return ordered


def _orderable(value: Any) -> tuple[int, Any]:
    """Values of any type in one order: nothing, numbers, texts, tuples, others as text."""
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, str):
        return (2, value)
    if isinstance(value, tuple):
        return (3, value)
    return (4, str(value))
