"""The keys of a row that a client asked for (`columns`), dotted for inner ones.

The broker chooses in lists, so that nothing else crosses the control socket; the web process in
single objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def value_at(row: Any, parts: Iterable[str]) -> Any:
    """What lies below a dotted key; None if nothing does."""
    for part in parts:
        if not isinstance(row, Mapping) or part not in row:
            return None
        row = row[part]
    return row


def chosen(row: dict[str, Any], columns: list[str] | None) -> dict[str, Any]:
    """The row with only the wanted keys; dotted ones keep their nesting."""
    if not columns:
        return row
    kept: dict[str, Any] = {}
    for column in columns:
        if column in row:
            kept[column] = row[column]
            continue
        parts = column.split(".")
        if parts[0] in columns:
            continue  # the whole of it is there
        value = value_at(row, parts)
        if value is None and not _has(row, parts):
            continue
        into = kept
        for part in parts[:-1]:
            inner = into.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            into = inner
        else:
            into[parts[-1]] = value
    return kept


def _has(row: Any, parts: list[str]) -> bool:
    for part in parts:
        if not isinstance(row, Mapping) or part not in row:
            return False
        row = row[part]
    return True
