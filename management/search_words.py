"""What a person writes to find messages of a stream: `order_id=4711 since yesterday`.

    [KEY=]VALUE [since MOMENT] [until MOMENT]

A value with blanks, or with one of the words in it, stands in double quotes, in which `\\"` is a
quote and `\\\\` a backslash. Days are those of UTC. A search of the history (`parse_history`) also
takes `vhost=NAME`, `queue=NAME` and `exchange=NAME`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from broker.schema.times import age_ms

DAY = timedelta(days=1)
MS = timedelta(milliseconds=1)
_EXPECTED = (
    "expected a day such as 2026-11-22, a time such as 2026-11-22 14:30, today, yesterday, now,"
    " an age such as 2h or 7D, or ms since 1970"
)
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_KEY = re.compile(r"[^\s=\"]+(?==)")
_FILTER = re.compile(
    r'(?<!\S)(vhost|queue|exchange)=(?:"((?:[^"\\]|\\["\\])*)"|(\S+))|"(?:[^"\\]|\\["\\])*"',
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s+(since|until)\s+", re.IGNORECASE)


class BadWords(ValueError):
    """What cannot be understood; the text says what would be."""


class Words(NamedTuple):
    """`key` is None where none is named; times in ms since 1970, both included."""

    key: str | None
    value: str
    first: int | None
    last: int | None


def parse(text: str, now_ms: int) -> Words:
    """What to search for. Raises BadWords."""
    rest = text.strip()
    key = None
    named = _KEY.match(rest)
    if named:
        key = named[0]
        rest = rest[named.end() + 1 :].lstrip()
    quoted = _QUOTED.match(rest)
    if quoted:
        value = re.sub(r'\\(["\\])', r"\1", quoted[1])
        parts = _RANGE.split(f" {rest[quoted.end() :]}")
        if parts[0].strip():
            raise BadWords(f"'{parts[0].strip()[:100]}' behind the quoted value is not understood")
    else:
        parts = _RANGE.split(f" {rest}")
        value = parts[0].strip()
    if not value and not quoted:
        raise BadWords('there is no value to search for: write one, such as order_id=4711, or ""')
    times: dict[str, int] = {}
    for word, written in zip(parts[1::2], parts[2::2], strict=True):
        if word.lower() in times:
            raise BadWords(f"'{word.lower()}' is there twice; quote a value that has it")
        times[word.lower()] = moment(written, now_ms, is_end=word.lower() == "until")
    words = Words(key, value, times.get("since"), times.get("until"))
    check(words.first, words.last)
    return words


class HistoryWords(NamedTuple):
    """What to search the history for; None: in any vhost, queue or exchange."""

    words: Words
    vhost: str | None = None
    queue: str | None = None
    exchange: str | None = None


def parse_history(text: str, now_ms: int) -> HistoryWords:
    """What to search the history for. Raises BadWords."""
    found: dict[str, str] = {}

    def taken(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        name = match[1].lower()
        if name in found:
            raise BadWords(f"'{name}=' is there twice")
        quoted = match[2]
        found[name] = match[3] if quoted is None else re.sub(r'\\(["\\])', r"\1", quoted)
        return ""

    rest = _FILTER.sub(taken, text)
    if not rest.strip() or _RANGE.match(f" {rest.strip()} "):
        raise BadWords(
            "there is no value to search for: write a key and its value, such as order_id=4711"
        )
    if found.get("exchange") == "amq.default":
        found["exchange"] = ""
    return HistoryWords(parse(rest, now_ms), **found)


def check(first: int | None, last: int | None) -> None:
    """Raises BadWords for a range that is turned round."""
    if first is not None and last is not None and first > last:
        raise BadWords("the range of time ends before it begins")


def moment(text: str, now_ms: int, *, is_end: bool = False) -> int:
    """A time in ms since 1970; of a day its beginning or, with `is_end`, its last ms. Raises
    BadWords."""
    word = text.strip().lower()
    if re.fullmatch("[0-9]{9,16}", word, re.ASCII):
        return int(word)
    age = age_ms(text.strip())
    if age is not None:
        return now_ms - age
    if word == "now":
        return now_ms
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    try:
        if word in ("today", "yesterday"):
            return _of_day(today - (DAY if word == "yesterday" else timedelta()), is_end)
        if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", word, re.ASCII):
            return _of_day(date.fromisoformat(word), is_end)
        found = datetime.fromisoformat(text.strip().upper())
        return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadWords(f"'{text.strip()[:100]}' is no time: {_EXPECTED}") from None


def _of_day(day: date, is_end: bool) -> int:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return round((begin + DAY - MS if is_end else begin).timestamp() * 1000)
