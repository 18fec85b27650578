"""The few that are wanted of many things: the first by a key, without sorting them all, and those
with a name that a pattern finds."""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from broker.access.patterns import Pattern
from broker.kernel.through import long_list
from broker.server.control.matching import matched
from broker.server.control.rosters import in_order
from broker.server.pace import Pace
from broker.stats.ordering import first_places, numbers, places_before, texts

_STEP = 250
"""Things between two looks at the clock: 0.1 ms with a quick key."""

_FEW = 2_000
"""Of more than this number all are put in order, or by a thread."""

_NAMES_PER_LOOK = 200
_FOLDED_PER_LOOK = 100
"""To compare the longest names, of foreign letters, without regard to case takes 0.2 ms then."""

_PATTERNS_REMEMBERED = 4
_NAMES_REMEMBERED = 25_000
"""Of each pattern; longer lists are matched anew each time. About 100 octets each."""

_found: OrderedDict[str, dict[str, bool]] = OrderedDict()
"""By the text of a pattern, which names it finds; the pattern used last comes last."""


async def found_by(pattern: Pattern, names: list[str], pace: Pace) -> list[bool]:
    """Which of the names the pattern finds. A page asks for the same again and again: what the
    patterns used lately found is remembered."""
    found: list[bool] = long_list()
    if len(names) > _NAMES_REMEMBERED:
        for start in range(0, len(names), _NAMES_PER_LOOK):
            found += await matched(pattern, names[start : start + _NAMES_PER_LOOK], pace)
            await pace()
        return found
    known = _found.pop(pattern.text, None)
    if known is None or len(known) > _NAMES_REMEMBERED:
        known = {}
    _found[pattern.text] = known
    while len(_found) > _PATTERNS_REMEMBERED:
        _found.popitem(last=False)
    for start in range(0, len(names), _NAMES_PER_LOOK):
        part = names[start : start + _NAMES_PER_LOOK]
        new = [one for one in dict.fromkeys(part) if one not in known]
        known.update(zip(new, await matched(pattern, new, pace), strict=True))
        found += map(known.__getitem__, part)
        await pace()
    return found


async def having(wanted: str, names: list[str], pace: Pace) -> list[bool]:
    """Which of the names have `wanted` in them, in letters of any case."""
    folded = wanted.casefold()
    found: list[bool] = long_list()
    for start in range(0, len(names), _FOLDED_PER_LOOK):
        part = names[start : start + _FOLDED_PER_LOOK]
        found += [folded in one.casefold() for one in part]
        await pace()
    return found


async def picked(things: list[Any], fits: list[list[bool]], pace: Pace) -> list[Any]:
    """The things for which one of the lists says so, each at the place of the thing."""
    kept: list[Any] = long_list()
    for start in range(0, len(things), _NAMES_PER_LOOK):
        stop = start + _NAMES_PER_LOOK
        parts = zip(*(each[start:stop] for each in fits), strict=True)
        kept += compress(things[start:stop], map(any, parts))
        await pace()
    return kept


class AsText:
    """A key that is compared as text: nothing and what is empty come first, tables as text."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __call__(self, thing: Any) -> str:
        return self.of([thing], 0, 1)[0]

    def of(self, things: list[Any], start: int, stop: int) -> list[str]:
        """The keys of `things[start:stop]`."""
        return texts(things, self._read, start, stop)


async def first_by_key(
    things: list[Any], key: Callable[[Any], Any], enough: int, reverse: bool, pace: Pace
) -> Sequence[int]:
    """The places of the first `enough` things by their keys, in short steps; equals stay in the
    order they come in. Keys are of any types: nothing comes first, then numbers, texts, tuples, and
    others as text."""
    found = None if isinstance(key, AsText) else await _numbers(things, key, pace)
    if found is not None:
        return await places_of_first(found, enough, reverse)
    keys: list[Any] = long_list()
    types: set[type] = set()
    for start in range(0, len(things), _STEP):
        stop = start + _STEP
        if isinstance(key, AsText):
            keys += key.of(things, start, stop)
        else:
            read = list(map(key, things[start:stop]))
            types.update(map(type, read))
            keys += read
        await pace()
    if types - {str} and types - {tuple}:
        for start in range(0, len(keys), _STEP):
            keys[start : start + _STEP] = map(_orderable, keys[start : start + _STEP])
            await pace()
    if enough > _FEW:
        places = await in_order(range(len(keys)), keys.__getitem__, pace, reverse)
        del places[enough:]
        return places
    return await _first_of(keys, enough, reverse, pace)


async def places_of_first(numbers: array[float], enough: int, reverse: bool) -> array[int]:
    """`first_places`, of very many in a thread."""
    if enough <= _FEW:
        return first_places(numbers, enough, reverse)
    return await asyncio.to_thread(first_places, numbers, enough, reverse)


async def _numbers(things: list[Any], key: Callable[[Any], Any], pace: Pace) -> array[float] | None:
    """The keys of the things, None as the first of all; None if one is no number."""
    found = array("d", bytes(8 * len(things)))
    for start in range(0, len(things), _STEP):
        if not numbers(things, key, start, start + _STEP, found):
            return None
        await pace()
    return found


async def _first_of(keys: list[Any], enough: int, reverse: bool, pace: Pace) -> list[int]:
    """Like `first_places` for keys that can be compared. Most are out with one comparison: they lie
    behind the last of those picked so far."""
    best: list[int] = []
    for start in range(0, len(keys), _STEP):
        stop = min(start + _STEP, len(keys))
        if len(best) >= enough > 0:
            near = places_before(keys, keys[best[-1]], start, stop, reverse)
        else:
            near = list(range(start, stop))
        if near:
            # Stable also where it is reversed: an earlier place comes first among equals.
            best = sorted([*best, *near], key=keys.__getitem__, reverse=reverse)[:enough]
        await pace()
    return best


def _orderable(value: Any) -> tuple[int, Any]:
    """Values of any type in one order: nothing, numbers, texts, tuples, others as text, the empty
    ones of these first."""
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, value)
    if isinstance(value, str):
        return (2, value)
    if isinstance(value, tuple):
        return (3, value)
    return (4, str(value) if value else "")
