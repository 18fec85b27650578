"""Matching users' patterns without holding up the loop.

A match cannot be interrupted, and the longest takes milliseconds (`PATTERN_STEPS_MAX`). RE2 lets
Python go on meanwhile; so what may take long is done in a thread, one piece after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from broker.access.patterns import BadPattern, Pattern, split_exclusion
from broker.server.pace import Pace

_QUICK = 30_000
"""Steps of a pattern times characters of a name: a match takes 0.2 ms at most."""
_AT_ONCE = 500_000
"""The same, for what the thread gets at a time: others that ask wait for it."""
_NAMES_AT_ONCE = 200
_STEPS_PER_LOOK = 1_000
"""A step of a pattern may take as long as looking into a name."""
_thread = ThreadPoolExecutor(1, "patterns")


def sent_without_case(text: str) -> Pattern:
    """The pattern with which a user looks for names, as RabbitMQ's lists do: without regard to
    case. Raises BadPattern, with the text as it was sent."""
    try:
        return Pattern.sent(_caseless(text))
    except BadPattern:
        Pattern.sent(text)
        # In itself the text is allowed: it has too many steps without regard to case.
        raise


def _caseless(text: str) -> str:
    """The text with RE2's flag for it, on both sides of an exclusion. What has no letter, as the
    usual `.*`, needs none."""
    if not any(map(str.isalpha, text)):
        return text
    parts = split_exclusion(text)
    if parts is None:
        return f"(?i){text}"
    excluded, rest = parts
    return f"^(?!(?i){excluded})(?i){rest}"


async def matched(pattern: Pattern, names: list[str], pace: Pace) -> list[bool]:
    """Which of the names the pattern finds, in their order."""
    loop = asyncio.get_running_loop()
    found: list[bool] = []
    rest = iter(names)
    while part := list(islice(rest, _NAMES_AT_ONCE)):
        for names_at_once, is_quick in _parts(pattern, part):
            if is_quick:
                found += map(pattern.matches, names_at_once)
            else:
                found += await loop.run_in_executor(_thread, _match, pattern, names_at_once)
            await pace()
    return found


def _match(pattern: Pattern, names: list[str]) -> list[bool]:
    return [pattern.matches(name) for name in names]


def _parts(pattern: Pattern, names: list[str]) -> Iterator[tuple[list[str], bool]]:
    """The names in groups that are each matched in one go, and whether that is quick."""
    longest = pattern.steps * (max(map(len, names)) + 1)
    is_quick = longest <= _QUICK
    size = _STEPS_PER_LOOK // pattern.steps if is_quick else _AT_ONCE // longest
    size = max(1, size)
    for first in range(0, len(names), size):
        yield names[first : first + size], is_quick
