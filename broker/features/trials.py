"""Definitions that a user wants tried by the process `bridges`: shovels and upstreams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.settings.bounds import CONTROL_SHARE, TRIALS_MAX

Answer = Callable[[list[Any]], None]


class TooManyTrials(Exception):
    """Nothing further is tried until one of those under way is over."""


class Trials:
    """Those of one kind that wait for their answers. `changed` and `ended` are called with the
    number of a new one, and of one whose caller has left."""

    def __init__(self, changed: Callable[[str], None], ended: Callable[[str], None]) -> None:
        self._changed = changed
        self._ended = ended
        self._waiting: dict[int, tuple[dict[str, Any], Answer]] = {}
        self._last = 0

    def ask(self, order: dict[str, Any], answer: Answer) -> int:
        """Has a definition tried; `answer` gets what was found. Returns its number. Raises
        TooManyTrials: each may wait long for a broker elsewhere."""
        owner = order["owner"]
        own = sum(1 for other, _ in self._waiting.values() if other["owner"] == owner)
        if len(self._waiting) >= TRIALS_MAX:
            raise TooManyTrials(f"{TRIALS_MAX} definitions are being tried")
        if owner and own >= TRIALS_MAX // CONTROL_SHARE:
            raise TooManyTrials(f"{own} definitions of this user are being tried")
        self._last += 1
        self._waiting[self._last] = {"id": self._last, **order}, answer
        self._changed(str(self._last))
        return self._last

    def order(self, id: str) -> dict[str, Any]:
        """What the process has to know of one."""
        found = self._waiting.get(int(id))
        return found[0] if found is not None else {"id": int(id), "gone": True}

    def end(self, id: int) -> None:
        """The caller does not wait for it any more."""
        if self._waiting.pop(id, None) is not None:
            self._ended(str(id))

    def take(self, id: int, steps: list[Any]) -> None:
        """What was found."""
        found = self._waiting.get(id)
        self.end(id)
        if found is not None:
            found[1](steps)
