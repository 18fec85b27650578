"""The result of a report as a table that fits a window of 1,280 pixels.

A value and the one of the period before are one cell. Columns behind those that fit are one column,
in which each row lists what is not zero.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from frontend import figures
from frontend.templatetags.show import moment, name
from management.reports.measures import Column
from management.reports.tariff import amount

BEFORE = "_before"
ROOM_PX = 1_000
LISTED_PX = 190
"""What the column of the others takes at least."""
PAIR_PX = 88
"""What a value with the one before takes at least."""
PHONE = 7
"""The columns that a small screen shows."""
SECOND_MS = 1_000
_PADDING_PX = 14
_LETTER_PX = 7.2
_LEAST_PX = {"time": 150, "text": 92, "bytes": 60, "ms": 66, "money": 84, "number": 58, "count": 48}


@dataclass(frozen=True)
class Layout:
    """Which columns of a view stand beside each other, and which are listed in the last one."""

    columns: tuple[Column, ...]
    shown: tuple[Column, ...]
    listed: tuple[Column, ...]

    @classmethod
    def of(cls, columns: tuple[Column, ...], hidden: Collection[str] = ()) -> Layout:
        """`hidden`: names of columns that are not shown at all."""
        names = {column.name for column in columns}
        pairs = {each + BEFORE for each in names}
        single = [one for one in columns if one.name not in pairs and one.name not in hidden]
        widths = [_width(column, column.name + BEFORE in names) for column in single]
        if sum(widths) <= ROOM_PX:
            return cls(columns, tuple(single), ())
        left, fitting = float(ROOM_PX - LISTED_PX), 0
        for width in widths:
            left -= width
            if left < 0:
                break
            fitting += 1
        return cls(columns, tuple(single[:fitting]), tuple(single[fitting:]))

    @property
    def headings(self) -> list[tuple[Column, str]]:
        """The columns with the classes of their headings."""
        return [(column, _classes(column, place)) for place, column in enumerate(self.shown)]

    def row(self, values: Sequence[Any]) -> SafeString:
        """The cells of one row, as HTML."""
        found = dict(zip((column.name for column in self.columns), values, strict=True))
        cells = [self._cell(column, place, found) for place, column in enumerate(self.shown)]
        if self.listed:
            cells.append(self._list(found))
        return mark_safe("".join(cells))  # noqa: S308 - each is made by format_html

    def _cell(self, column: Column, place: int, found: dict[str, Any]) -> SafeString:
        value = found[column.name]
        if column.kind == "time":
            # A month of UTC is the same month everywhere.
            text = figures.month(value) if column.name == "month" else moment(value)
            return format_html('<th scope="row">{}</th>', text)
        if column.kind == "text":
            return format_html('<td class="name-cell">{}</td>', name(value))
        before = ""
        if column.name + BEFORE in found:
            earlier = found[column.name + BEFORE]
            before = format_html(
                ' <span class="hint" title="{}">before {}</span>',
                exact(column, earlier),
                written(column, earlier),
            )
        return format_html(
            '<td class="{}{}" data-label="{}" title="{}">{}{}</td>',
            _classes(column, place),
            "" if value else " zero",
            column.title,
            exact(column, value),
            written(column, value),
            before,
        )

    def _list(self, found: dict[str, Any]) -> SafeString:
        pairs = []
        for column in self.listed:
            value, earlier = found[column.name], found.get(column.name + BEFORE)
            if not value and not earlier:
                continue
            text = written(column, value)
            if column.name + BEFORE in found:
                text = f"{text}, before {written(column, earlier)}"
            pairs.append((exact(column, value), column.title, text))
        if not pairs:
            return mark_safe('<td class="listed zero">–</td>')
        items = format_html_join(
            " ", '<span title="{}"><span class="hint">{}</span> {}</span>', pairs
        )
        return format_html('<td class="listed">{}</td>', items)


def written(column: Column, value: Any) -> str:
    """A value in few letters."""
    if value is None:
        return figures.UNKNOWN
    if column.kind == "money":
        return figures.money(value)
    if column.kind == "time":
        return moment(value)
    if column.kind == "ms":
        return f"{value} ms" if abs(value) < SECOND_MS else figures.duration(value / SECOND_MS)
    if column.kind == "bytes":
        return figures.size(value)
    if column.kind == "number":
        return _fraction(column, value)
    return figures.count(value) if column.kind == "count" else str(value)


def exact(column: Column, value: Any) -> str:
    """A value in full."""
    if value is None:
        return ""
    if column.kind == "money":
        return amount(value)
    if column.kind == "time":
        return figures.moment(value)
    unit = {"bytes": " bytes", "ms": " ms"}.get(column.kind, f" {column.unit}".rstrip())
    return f"{value:,}{unit}"


def _fraction(column: Column, value: float) -> str:
    if column.unit == "bytes":
        return figures.size(value)
    return f"{value:+,.1f} %" if column.unit == "%" else f"{value:,.1f}"


def _classes(column: Column, place: int) -> str:
    if column.kind in ("text", "time"):
        return ""
    return "number wide" if place >= PHONE else "number"


def _width(column: Column, is_pair: bool) -> float:
    """What a column takes, in pixels: its heading breaks between words."""
    word = max(map(len, column.title.split()), default=0)
    return _PADDING_PX + max(_LEAST_PX[column.kind], word * _LETTER_PX, PAIR_PX * is_pair)
