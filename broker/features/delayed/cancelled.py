"""Which messages were cancelled while the index on disk still names them.

The index meets them at their due time. Until then each costs an entry here, so there may be only so
many; those of a segment go together when nothing of it waits any more.
"""

from __future__ import annotations

from collections.abc import Callable


class Cancelled:
    """Places of cancelled messages, by their segments; `most` of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._places: dict[int, set[int]] = {}
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more may be cancelled until some are due."""
        return self.count >= self.most

    def add(self, segment: int, position: int) -> None:
        positions = self._places.setdefault(segment, set())
        before = len(positions)
        positions.add(position)
        self.count += len(positions) - before

    def holds(self, segment: int, position: int) -> bool:
        return position in self._places.get(segment, ())

    def take(self, segment: int, position: int) -> bool:
        """Whether the message at this place was cancelled; it is forgotten then."""
        positions = self._places.get(segment)
        if positions is None or position not in positions:
            return False
        positions.remove(position)
        self.count -= 1
        if not positions:
            del self._places[segment]
        return True

    def forget_gone(self, is_there: Callable[[int], bool]) -> None:
        """Drops those whose segment was removed: the index finds nothing behind their places
        anyway."""
        for segment in [each for each in self._places if not is_there(each)]:
            self.count -= len(self._places.pop(segment))
