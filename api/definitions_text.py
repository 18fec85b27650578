"""A definitions document as JSON text, written while its rows come."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec


class DefinitionsText:
    """One document: first the members of `head`, then the sections, lists of rows, in their order.
    Each has its place also where it is empty. Without `end` the text is no JSON."""

    def __init__(self, head: dict[str, Any], sections: list[str]) -> None:
        self._head = head
        self._coming = list(reversed(sections))
        self._section: str | None = None
        self._has_rows = False

    def begin(self) -> bytes:
        """The text before the first section."""
        return msgspec.json.encode(self._head).removesuffix(b"}")

    def add(self, items: list[Any]) -> bytes:
        """Rows as pairs of section and row, in the order of the sections."""
        pieces = []
        for section, pairs in groupby(items, key=itemgetter(0)):
            while self._section != section:
                pieces.append(self._next())
            text = msgspec.json.encode([row for _, row in pairs])[1:-1]
            pieces.append(b"," + text if self._has_rows else text)
            self._has_rows = True
        return b"".join(pieces)

    def end(self) -> bytes:
        """The sections that are left, and the end."""
        pieces = []
        while self._coming:
            pieces.append(self._next())
        return b"".join(pieces) + (b"]}" if self._section is not None else b"}")

    def _next(self) -> bytes:
        """The end of a section and the beginning of the next one. Raises IndexError if there is
        none."""
        ends = b"]," if self._section is not None else b","
        self._section = self._coming.pop()
        self._has_rows = False
        return ends + msgspec.json.encode(self._section) + b":["
