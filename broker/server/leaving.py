"""Connections that are over and wait for their client to close its end.

Each waits for a bounded time (`close_timeout`) and throws a bounded number of bytes away
(`close_discard_max`); here is the bound on how many there are (`closing_max`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.wire.connection import Connection


class Leaving:
    """In the order of their ends. `limit()` says how many there may be."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._connections: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """One more; where there are too many, the socket of the oldest is ended."""
        self._connections[connection] = None
        if len(self._connections) > self._limit():
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.drop()

    def discard(self, connection: Connection) -> None:
        """Its transport is closed."""
        self._connections.pop(connection, None)

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections))
