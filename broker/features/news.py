"""What changed, for a process that asks for all that is newer than it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.kernel import clock

Key = tuple[str, ...]

GONE_KEPT = 5000


class News:
    """Things in the order of their last change, so that one which changes all the time is sent
    once. `version` begins at the time of the start: that of an earlier process is none of ours."""

    def __init__(self) -> None:
        self.version = clock.now()
        self._whole_since = self.version
        self._at: dict[Key, int] = {}
        self._gone: dict[Key, None] = {}
        self.waiting: list[Callable[[], None]] = []
        """Called at the next change, once."""

    def changed(self, *key: str) -> None:
        """A thing is new or another than it was."""
        self._tell(key)
        self._gone.pop(key, None)

    def ended(self, *key: str) -> None:
        """A thing was removed."""
        self._tell(key)
        self._gone[key] = None
        if len(self._gone) > GONE_KEPT:
            # A reader that has seen less than half of these ends gets everything again.
            for old in list(self._gone)[: GONE_KEPT // 2]:
                self._whole_since = max(self._whole_since, self._at.pop(old))
                del self._gone[old]

    def _tell(self, key: Key) -> None:
        self.version += 1
        self._at.pop(key, None)
        self._at[key] = self.version
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()

    def since(self, version: int, most: int) -> dict[str, Any]:
        """What changed after a version, oldest first: {version, is_whole, more, keys}. With
        `is_whole` the caller forgets what it knew."""
        is_whole = not self._whole_since <= version <= self.version
        newer: list[tuple[Key, int]] = []
        for key in reversed(self._at):
            at = self._at[key]
            if at <= version and not is_whole:
                break
            newer.append((key, at))
        newer.reverse()
        some = newer[:most]
        more = len(newer) > most
        return {
            "version": some[-1][1] if more else self.version,
            "is_whole": is_whole,
            "more": more,
            "keys": [key for key, _ in some],
        }
