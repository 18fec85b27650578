"""The verbs `list` and `item`: rows of any noun, filtered, sorted and paged.

Work goes in short steps, so that 100,000 queues hold up no other client; only the rows of the page
are built. Queues, exchanges and bindings are kept in order (`rosters`), and figures of queues are
compared in C (`broker.stats.ordering`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from broker.access.patterns import BadPattern, Pattern
from broker.schema.control_schema import NOUNS, Item, List
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
from broker.server.control.connection_rows import Channels, Connections
from broker.server.control.consumer_rows import Consumers
from broker.server.control.encoding import encode_rows
from broker.server.control.matching import sent_without_case
from broker.server.control.open_lists import WHOLE_ROWS, OpenList, RowsOf
from broker.server.control.past import aged_of_object
from broker.server.control.picking import (
    first_by_key,
    found_by,
    having,
    picked,
    places_of_first,
)
from broker.server.control.policy_rows import OperatorPolicies, Policies
from broker.server.control.queue_rows import Exchanges, Queues
from broker.server.control.requests import Request, RequestError, bad_request, handles
from broker.server.control.rosters import column, in_order, last_first, rosters_of, those_at
from broker.server.control.views import View
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.server.app import Broker

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
_FEW = 2_000
"""Up to this number, things of a long list are picked out; for more, all is sorted and kept."""


@handles("list")
async def list_noun(request: Request[List]) -> Any:
    """Answers verb `list`."""
    args = request.args
    noun = NOUNS.get(args.noun)
    if noun is None:
        raise bad_request(f"noun '{args.noun[:100]}' does not exist")
    request.caller.require(noun.list_tag)
    _check_page(args)
    if args.slices is None or args.page is not None:
        return await _answer(request, None)
    lists = request.session.lists
    opened = lists.open(args.slices, request.caller)
    try:
        answer = await _answer(request, opened)
    except BaseException:
        lists.close(args.slices)
        raise
    if not answer["more"]:
        lists.close(args.slices)
    return answer


async def _answer(request: Request[List], opened: OpenList | None) -> dict[str, Any]:
    """The rows and the counts; of a long list, which `opened` is for, the first rows."""
    args = request.args
    view = VIEWS[args.noun](request.broker)
    pace = Pace()
    await pace()  # others have begun in this turn
    version = view.keeper.version
    everything = await view.everything(request.caller, args, pace)
    total = len(everything)
    scope = _scope(request, view, version)
    things = await _filtered(view, everything, args, scope, pace)
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
    if args.sort or not view.is_kept(args):
        whole = scope if things is everything else None
        things = await _sorted(view, things, args, min(last, count), whole, pace)
    elif args.sort_reverse:
        things = await last_first(things, min(last, count), pace)
    shown = things if first == 0 and last >= len(things) else things[first:last]
    # Where no one else has it once this is answered, a long list is freed in steps.
    for each in (things, shown, everything):
        rosters_of(request.broker).freeing.add(each)
    if opened is not None and len(shown) > WHOLE_ROWS:
        # What changes by itself is that of the slice's time, as the rows are.
        noun_view = VIEWS[args.noun]
        rows = lambda part: map(noun_view(request.broker).chooser(args), part)  # noqa: E731
        opened.begin(RowsOf(shown, rows, rosters_of(request.broker).freeing))
        items = await opened.slice()
    elif args.page is not None or opened is not None:
        items = await encode_rows(map(view.chooser(args), shown))
    else:
        async with rosters_of(request.broker).whole_lists:
            items = await encode_rows(map(view.chooser(args), shown))
    return {
        "items": items,
        "item_count": len(shown),
        "filtered_count": count,
        "total_count": total,
        "page": args.page or 1,
        "page_count": page_count,
        "page_size": args.page_size if args.page is not None else count,
        **({} if opened is None else {"more": not opened.is_over}),
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
    thing = view.find(request.caller, args)
    args = await aged_of_object(request.broker, view, thing, args)
    row = view.item(thing, args)
    if args.disable_stats or not args.flows:
        return row
    return row | await view.flows(thing, args)


def find_by_key(broker: Broker, caller: Any, noun: str, key: list[str]) -> tuple[View, Any]:
    """The view and the thing that a row key names. Raises RequestError if there is none."""
    fields = NOUNS[noun].key
    if len(key) != len(fields):
        raise bad_request(f"a key of {noun} is [{', '.join(fields)}]")
    caller.require(NOUNS[noun].list_tag)
    view = VIEWS[noun](broker)
    if isinstance(view, Consumers):
        return view, view.by_key(caller, *key)
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


def _expression(args: List) -> Pattern | None:
    """The wanted expression, or None where a part of a name is wanted. Raises RequestError."""
    if not args.use_regex:
        return None
    try:
        return sent_without_case(args.name or "")
    except BadPattern as error:
        raise RequestError("invalid_pagination_parameters", str(error)) from None


async def _filtered(view: View, things: list[Any], args: List, scope: Any, pace: Pace) -> list[Any]:
    """Those that the name filter and the wanted state let through; `scope` names the things."""
    if args.name:
        things = await _named(view, things, args.name, _expression(args), scope, pace)
    if args.state is None:
        return things
    wanted = troubles.WORRYING if args.state == "trouble" else {args.state}
    return await view.in_state(things, wanted, pace)


async def _named(
    view: View, things: list[Any], wanted: str, pattern: Pattern | None, scope: Any, pace: Pace
) -> list[Any]:
    """Those with a name that has `wanted` in it, or that the pattern finds. Names never change, so
    they and what was found are kept as orders are."""
    reads = [view.name, view.client_name] if view.has_client_name else [view.name]

    async def fitting(place: int, read: Callable[[Any], str]) -> list[bool]:
        all_names = None if scope is None else (scope, "names of all", place)
        names = await view.keeper.kept(all_names, lambda: column(things, read, pace))
        if pattern is None:
            return await having(wanted, names, pace)
        return await found_by(pattern, names, pace)

    async def found() -> list[Any]:
        return await picked(things, [await fitting(*read) for read in enumerate(reads)], pace)

    filtered = None if scope is None else (scope, "filtered", wanted, pattern is None)
    return await view.keeper.kept(filtered, found)


async def _sorted(
    view: View, things: list[Any], args: List, enough: int, scope: Any, pace: Pace
) -> list[Any]:
    """The first `enough` things in the wanted order; equals stay in the order they come in. `scope`
    names the things, where all of them are here."""
    field = args.sort or ""
    is_fixed = view.is_kept(args) and field in view.fixed
    if is_fixed and _is_in_order(view, things, field):
        return await last_first(things, enough, pace) if args.sort_reverse else things
    if field in view.figures:
        keys = await _figures(view, things, field, pace)
        first = await places_of_first(keys, enough, args.sort_reverse)
        return await those_at(things, first, pace)
    if field and view.knows_fields and view.sort_key(field) is None:
        return things  # no row has the field, or it is the same in all
    key = view.key_of(field, args) if field else view.order
    name = None if scope is None else (scope, field)
    if is_fixed and (enough > _FEW or view.keeper.is_sorted(name, things)):
        things = await view.keeper.kept(name, lambda: in_order(things, key, pace))
        return await last_first(things, enough, pace) if args.sort_reverse else things
    places = await first_by_key(things, key, enough, args.sort_reverse, pace)
    return await those_at(things, places, pace)


def _scope(request: Request[List], view: View, version: object) -> Any:
    """What `everything` depends on, and the version it was begun with: what changed while it was
    made must not be kept for the next one. None: nothing is kept."""
    if not view.is_kept(request.args):
        return None
    return version, view.noun, *view.scope(request.caller, request.args)


def _is_in_order(view: View, things: list[Any], field: str) -> bool:
    """Whether the things are in that order already: by the first field of the kept order, or by the
    second where all have the first in common."""
    if field not in view.kept_order:
        return False
    if field == view.kept_order[0] or not things:
        return True
    key = view.sort_key(view.kept_order[0])
    return key is not None and key(things[0]) == key(things[-1])


async def _figures(view: View, things: list[Any], field: str, pace: Pace) -> array[float]:
    """What things are sorted by, one number each."""
    keys = array("d", bytes(8 * len(things)))
    for start in range(0, len(things), _CHUNK):
        stop = start + _CHUNK
        view.read_figures(things, field, start, stop, keys)
        await pace()
    return keys
