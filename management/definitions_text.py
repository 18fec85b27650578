"""A definitions document as JSON text, written while its rows come."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec


class DefinitionsText:
    """One document: first the members of `head`, then the sections, lists of rows, in their order.
    Each has its place also where it is empty. Without `end` the text is no JSON. `in_lines`: each
    row has a line of its own, for people and for what compares files."""

    def __init__(
        self, head: dict[str, Any], sections: list[str], *, in_lines: bool = False
    ) -> None:
        self._line = b"\n" if in_lines else b""
        self._head = head
        self._coming = list(reversed(sections))
        self._section: str | None = None
        self._has_rows = False

    def begin(self) -> bytes:
        """The text before the first section."""
        text = msgspec.json.encode(self._head).removesuffix(b"}")
        return text.replace(b"{", b"{" + self._line, 1)

    def add(self, items: list[Any]) -> bytes:
        """Rows as pairs of section and row, in the order of the sections."""
        pieces = []
        for section, pairs in groupby(items, key=itemgetter(0)):
            while self._section != section:
                pieces.append(self._next())
            for _, row in pairs:
                pieces.append(b"," + self._line if self._has_rows else self._line)
                pieces.append(msgspec.json.encode(row))
                self._has_rows = True
        return b"".join(pieces)

    def end(self) -> bytes:
        """The sections that are left, and the end."""
        pieces = []
        while self._coming:
            pieces.append(self._next())
        ends = self._end_of_section() + self._line + b"}" + self._line
        return b"".join(pieces) + ends

    def _next(self) -> bytes:
        """The end of a section and the beginning of the next one. Raises IndexError if there is
        none."""
        ends = self._end_of_section() + b"," + self._line
        self._section = self._coming.pop()
        self._has_rows = False
        return ends + msgspec.json.encode(self._section) + b":["

    def _end_of_section(self) -> bytes:
        if self._section is None:
            return b""
        return (self._line if self._has_rows else b"") + b"]"
