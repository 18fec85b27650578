"""How numbers, times and names are written. `static/js/components/figures.js` writes the same.

Counts are exact below 100,000; rates have three significant digits; bytes are KiB, MiB, GiB.
Zero is `0`, unknown is an en dash, and nothing is ever blank.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

UNKNOWN = "–"

_BIDI_CONTROLS = frozenset(
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
)
_SEPARATORS = frozenset("\u2028\u2029\ufeff")
_UNSEEN = _BIDI_CONTROLS | _SEPARATORS


def count(value: float | None) -> str:
    """A number of things: `34,428`, `1.24 M`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 100_000:
        return f"{int(value):,}"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{_significant(value / size)} {unit}"
    return f"{int(value):,}"


def channels(value: float | None) -> str:
    """`1 channel`, `2 channels`."""
    return f"{count(value)} channel{'' if value == 1 else 's'}"


def consumers(value: float | None) -> str:
    """`1 consumer`, `2 consumers`."""
    return f"{count(value)} consumer{'' if value == 1 else 's'}"


def rate(value: float | None) -> str:
    """A number per second, without its unit: `0`, `0.03`, `118`, `12.4 k`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 0.005:
        return "0"
    if abs(value) >= 9_999.5:
        return count(max(value, 100_000)) if value >= 100_000 else f"{_significant(value / 1e3)} k"
    return _significant(value)


def net(value: float | None) -> str:
    """A change per second with its sign: `+118`, `-3.2`, `0`."""
    text = rate(value)
    return f"+{text}" if value is not None and text != "0" and value > 0 else text


def size(value: float | None) -> str:
    """Bytes: `162 B`, `5.61 MiB`."""
    if value is None:
        return UNKNOWN
    if abs(value) < 1024:
        return f"{int(value)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if abs(value) < 1023.5 or unit == "PiB":
            break
    return f"{_significant(value)} {unit}"


def duration(seconds: float | None) -> str:
    """A time span, its two largest units at most: `0.4 s`, `12 min`, `3 h 20 min`, `9 d`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds % 1 >= 0.05 else f"{int(seconds)} s"
    if seconds < 120:
        return f"{int(seconds)} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes and hours < 10 else f"{hours} h"
    return f"{hours // 24} d"


def money(millionths: int | None) -> str:
    """An amount in millionths of a currency, rounded to hundredths; less than one is shown so."""
    if millionths is None:
        return UNKNOWN
    if 0 < abs(millionths) < 5_000:
        return "< 0.01"
    return f"{Decimal(millionths).scaleb(-6).quantize(Decimal('0.01'), ROUND_HALF_UP):,}"


def month(milliseconds: int) -> str:
    """A month of UTC, which is no other month anywhere else: `Nov 2026`."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%b %Y")


def moment(milliseconds: float | None) -> str:
    """A point in time in UTC, for `<time datetime>`; the browser shows the viewer's zone."""
    if milliseconds is None:
        return UNKNOWN
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_parts(name: str) -> Iterator[tuple[str, bool]]:
    """The name in pieces, each with whether it is an escape for an unseen character."""
    plain: list[str] = []
    for character in name:
        escape = escaped(character)
        if escape is None:
            plain.append(character)
            continue
        if plain:
            yield "".join(plain), False
            plain.clear()
        yield escape, True
    if plain:
        yield "".join(plain), False


def escaped(character: str) -> str | None:
    """`\\n`, `\\u202e` and so on for a character that is unseen or turns text around, else None."""
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if unicodedata.category(character) == "Cc" or character in _UNSEEN:
        code = ord(character)
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    return None


def is_plain(name: str) -> bool:
    """Whether a person can type this name: it has no unseen characters and no blank ends."""
    return bool(name) and name == name.strip() and all(escaped(c) is None for c in name)


def spark_path(values: list[float | None], width: int = 120, height: int = 26) -> tuple[str, str]:
    """The line and the area below it as SVG path data; gaps stay gaps. Empty if unknown."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return "", ""
    top = max(max(known), 1e-9)
    step = width / max(len(values) - 1, 1)
    line: list[str] = []
    area: list[str] = []
    start = None
    for position, value in enumerate(values):
        if value is None:
            if start is not None:
                area.append(f"L{(position - 1) * step:.1f},{height}Z")
            start = None
            continue
        point = f"{position * step:.1f},{height - 1 - value / top * (height - 3):.1f}"
        if start is None:
            line.append(f"M{point}")
            area.append(f"M{position * step:.1f},{height}L{point}")
            start = position
        else:
            line.append(f"L{point}")
            area.append(f"L{point}")
    if start is not None:
        area.append(f"L{width},{height}Z")
    return "".join(line), "".join(area)


def _significant(value: float) -> str:
    """Three significant digits without trailing zeros."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".")
