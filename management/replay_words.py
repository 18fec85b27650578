"""What a person writes to say which messages of a stream are replayed.

Where a range begins and where it ends is an offset in digits, or a moment as searches have it
(`management.search_words`); besides, the words of a search may pick messages of the range.
"""

from __future__ import annotations

from typing import Any

from management.search_words import BadWords, moment, parse


def replay_arguments(first: str, last: str, words: str, now_ms: int) -> dict[str, Any]:
    """Arguments of `transfer.replay`; what is empty is left out. Raises BadWords."""
    found: dict[str, Any] = {}
    if words.strip():
        asked = parse(words, now_ms)
        found = {"key": asked.key, "value": asked.value, "first": asked.first, "last": asked.last}
        found = {key: value for key, value in found.items() if value is not None}
    for name, text in (("first", first.strip()), ("last", last.strip())):
        if not text:
            continue
        if text.isascii() and text.isdecimal() and len(text) < 19:
            found[f"{name}_offset"] = int(text)
        elif name in found:
            raise BadWords("the range of time is there twice: in the search, and beside it")
        else:
            found[name] = moment(text, now_ms, is_end=name == "last")
    return found
