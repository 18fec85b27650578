"""The way to the tiers process, as the rest of the feature sees it: tasks out, answers in, pauses
after failures, and what it all cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker.schema.tier_work import Answer, Kind, Task

Done = Callable[[Answer], object]

PAUSE_FIRST_S = 1.0


class Carrier:
    """Gives tasks to whatever is connected (`send`), and their answers to who asked."""

    def __init__(self, appliance: str, now: Callable[[], float] = time.monotonic) -> None:
        self.appliance = appliance
        self._now = now
        self._send: Callable[[Task], object] | None = None
        self._waiting: dict[int, Done] = {}
        self._last_id = 0
        self.requests = self.sent = self.received = 0
        """Of the store: requests, and bytes of objects, since the start."""
        self.disowned: Done = lambda _: None
        """Told when the prefix is found to be another appliance's."""

    @property
    def is_there(self) -> bool:
        return self._send is not None

    @property
    def waiting(self) -> int:
        """Tasks without an answer."""
        return len(self._waiting)

    def connect(self, send: Callable[[Task], object]) -> None:
        """A tiers process is there."""
        self._send = send

    def disconnect(self) -> None:
        """The process is disconnected: which of its tasks it carried out is unknown."""
        self._send = None
        waiting, self._waiting = self._waiting, {}
        for id, done in waiting.items():
            done(Answer(id, "away", "the tiers process is not connected"))

    def give(self, kind: Kind, done: Done, **more: Any) -> None:
        """Has a task carried out; `done` follows with its answer."""
        self._last_id += 1
        task = Task(self._last_id, kind, self.appliance, **more)
        if self._send is None:
            done(Answer(task.id, "away", "the tiers process is not connected"))
            return
        self._waiting[task.id] = done
        self._send(task)

    def answered(self, answer: Answer) -> None:
        """The process has answered."""
        self.requests += answer.requests
        self.sent += answer.sent
        self.received += answer.received
        done = self._waiting.pop(answer.id, None)
        if answer.fault == "owner":
            self.disowned(answer)
        if done is not None:
            done(answer)


class Pause:
    """Between two tries of something that fails: from a second to `longest()` seconds."""

    def __init__(
        self, longest: Callable[[], float], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._longest = longest
        self._now = now
        self._until = 0.0
        self._length = 0.0
        self.problem = ""
        """Why it failed last; empty since it succeeded."""
        self.failures = 0
        """Since the start."""

    @property
    def is_over(self) -> bool:
        return self._now() >= self._until

    def fail(self, problem: str) -> bool:
        """It failed; whether that is the first time since it last succeeded."""
        is_first = not self.problem
        self.problem = problem or "it failed"
        self.failures += 1
        self._length = min(self._longest(), max(PAUSE_FIRST_S, 2 * self._length))
        self._until = self._now() + self._length
        return is_first

    def succeed(self) -> bool:
        """It went well; whether it had failed before."""
        had_failed = bool(self.problem)
        self.problem = ""
        self._until = self._length = 0.0
        return had_failed
