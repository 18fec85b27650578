"""What a command prints: aligned tables, tab-separated or comma-separated values, or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from management.ctl.table import Facts, Rows

FORMATS = {
    "text": "text",
    "table": "text",
    "pretty_table": "pretty",
    "pretty": "pretty",
    "json": "json",
    "tsv": "tsv",
    "csv": "csv",
}
"""Accepted names of formats, LavinMQ's and RabbitMQ's, to ours."""


def render(answer: Any, form: str, *, headers: bool = True) -> str:
    """The answer of a command as text without a final line break. `form` is a value of FORMATS."""
    if form == "json":
        return as_json(answer)
    if isinstance(answer, Rows):
        return _table(answer, form, headers)
    if isinstance(answer, Facts):
        return _facts(answer)
    if answer is None or answer == {}:
        return ""
    if isinstance(answer, str):
        return answer
    return json.dumps(answer, indent=2, ensure_ascii=False, default=_plain)


def as_json(answer: Any) -> str:
    """The answer as JSON: a table is an array of objects, text is a string."""
    if isinstance(answer, Rows):
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        if not rows:
            return "[]"
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, default=_plain) for row in rows)
        return f"[\n{lines}\n]"
    if isinstance(answer, Facts):
        answer = answer.data
    return json.dumps({} if answer is None else answer, ensure_ascii=False, default=_plain)


def cell(value: Any) -> str:
    """One value in a table. Control and formatting characters are escaped: names come from users,
    and a terminal obeys them."""
    if value is None:
        return ""
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (dict, list, tuple)):
        return safe(json.dumps(value, ensure_ascii=False, default=_plain))
    return safe(str(value))


def safe(text: str) -> str:
    """Text without characters that move the cursor, end the line or turn the writing direction."""
    if text.isprintable():
        return text
    shown = (one if one.isprintable() else _escape(one) for one in text)
    return "".join(shown)


def safe_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(safe(line) for line in text.split("\n"))


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _table(answer: Rows, form: str, headers: bool) -> str:
    if not answer.rows:
        return ""
    rows = [[cell(value) for value in row] for row in answer.rows]
    if headers:
        rows.insert(0, list(answer.columns))
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue().rstrip("\n")
    if form == "tsv":
        return "\n".join("\t".join(row) for row in rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if form == "pretty":
        return _boxed(rows, widths, headers)
    return "\n".join(_aligned(row, widths) for row in rows)


def _aligned(row: Iterable[str], widths: list[int]) -> str:
    return "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _boxed(rows: list[list[str]], widths: list[int], headers: bool) -> str:
    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def line(row: list[str]) -> str:
        cells = (f" {text.ljust(width)} " for text, width in zip(row, widths, strict=True))
        return "│" + "│".join(cells) + "│"

    lines = [rule("┌", "┬", "┐")]
    for number, row in enumerate(rows):
        lines.append(line(row))
        if headers and number == 0:
            lines.append(rule("├", "┼", "┤"))
    return "\n".join([*lines, rule("└", "┴", "┘")])


def _facts(answer: Facts) -> str:
    blocks = []
    for title, facts in answer.groups.items():
        width = max((len(name) for name in facts), default=0)
        lines = [title] if title else []
        lines += [f"  {name.ljust(width)}  {cell(value)}".rstrip() for name, value in facts.items()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
