"""What a link has to know of its exchange or queue: bindings that come and go, and whether
consumers want more than the queue has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from broker.routing.binding import Binding

CHANGES_KEPT = 4000


class BindingLog:
    """The last changes of one exchange's bindings. A reader without them lists all bindings, and
    takes the changes since then."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self.serial = 0
        """How many changes there were."""
        self._changes: deque[tuple[bool, Binding]] = deque(maxlen=CHANGES_KEPT)
        self._tell = tell

    def changed(self, binding: Binding, is_there: bool) -> None:
        """A binding was added or removed."""
        self.serial += 1
        self._changes.append((is_there, binding))
        self._tell()

    def since(self, serial: int, most: int) -> list[tuple[bool, Binding]] | None:
        """Changes behind a serial number, oldest first; None if they are not known any more."""
        first = self.serial - len(self._changes)
        if not first <= serial <= self.serial:
            return None
        start = serial - first
        return [self._changes[at] for at in range(start, min(start + most, len(self._changes)))]


class Demand:
    """Whether a queue should be fed: it begins when it is empty and a consumer could take a
    message, and ends when none could. It is announced again when consumers have taken what came."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue
        self.wants = False
        self._published = 0

    def look(self) -> bool:
        """Looks again; whether there is something to tell."""
        queue = self.queue
        is_empty = not queue.messages_ready
        now = queue.could_take and (self.wants or is_empty)
        published = queue.counts.published
        has_taken = now and is_empty and published != self._published
        if now == self.wants and not has_taken:
            return False
        self.wants = now
        self._published = published
        return True
