"""Connections that are over and wait for their client to close its end.

Each waits for a bounded time (`close_timeout`) and throws a bounded number of bytes away
(`close_discard_max`); here is the bound on how many there are (`closing_max`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.wire.session import Session


class Leaving:
    """In the order of their ends. `limit()` says how many there may be."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._sessions: dict[Session, None] = {}

    def add(self, session: Session) -> None:
        """One more; where there are too many, the socket of the oldest is ended."""
        self._sessions[session] = None
        if len(self._sessions) > self._limit():
            oldest = next(iter(self._sessions))
            del self._sessions[oldest]
            oldest.drop()

    def discard(self, session: Session) -> None:
        """Its transport is gone."""
        self._sessions.pop(session, None)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions))
