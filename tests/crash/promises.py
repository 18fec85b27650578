"""What was promised at each moment of a recording, and whether a recovered broker keeps it.

A moment is the number of file operations that have ended. What was asked may have any effect from
its moment on; what was answered has to be true from the moment of the answer on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.stream_promises import Kept, StreamPromises

NEVER = 1 << 62


@dataclass
class Copy:
    """One message in one queue. `homes`: moment from which it may be in a queue -> queue; a dead
    letter or a delayed message gets a second one. It has to be in one of them from `confirmed` on
    until `forgotten`, and in none from `gone` on. `taken`: delivered from then on. `is_held`: held
    back until it is due, so that it comes in any order."""

    number: int
    body: bytes
    homes: list[tuple[int, str]]
    level: int = 0
    is_held: bool = False
    confirmed: int = NEVER
    forgotten: int = NEVER
    gone: int = NEVER
    taken: int = NEVER

    @property
    def moves(self) -> bool:
        """Whether it is handed over at some time: a crash in between may double it."""
        return self.is_held or len(self.homes) > 1


@dataclass
class Declared:
    """A queue: when it was asked for and promised, and when its end was."""

    asked: int
    promised: int = NEVER
    unasked: int = NEVER
    ended: int = NEVER


@dataclass
class Found:
    """What a recovered broker has: queue -> (body, redelivered) in order of delivery."""

    queues: dict[str, list[tuple[bytes, bool]]]
    problems: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    """Files that nothing explains."""
    quarantined: int = 0
    """Stretches of damaged bytes that were kept aside."""
    stream: list[tuple[int, bytes]] = field(default_factory=list)
    """Offsets and bodies of the stream."""
    places: dict[str, int] = field(default_factory=dict)
    """Of the stream's consumers."""
    dangling: int = 0
    """References to shared bodies that were not found."""
    miscounted: str = ""
    """How the references of shared bodies differ from those that the queues have."""


class Promises:
    """Everything that was asked and answered."""

    def __init__(self) -> None:
        self.copies: dict[bytes, list[Copy]] = {}
        self.queues: dict[str, Declared] = {}
        self.stream: StreamPromises | None = None

    def add(self, copy: Copy) -> Copy:
        """A message is asked to be in a queue."""
        self.copies.setdefault(copy.body, []).append(copy)
        return copy

    def stream_places(self) -> list[list[Kept]]:
        """What was kept for each of the stream's consumers."""
        return list(self.stream.places.values()) if self.stream is not None else []

    def violations(self, found: Found, moment: int, killed: bool) -> list[str]:
        """What a recovery from a state of this moment got wrong. `killed`: all that was written is
        there, so that more is promised."""
        wrong = [f"stray {path}" for path in found.strays]
        if found.miscounted:
            wrong.append(found.miscounted)
        if self.stream is not None:
            wrong += self.stream.violations(found.stream, found.places, moment)
        if killed:
            wrong += [f"problem {text}" for text in found.problems]
        wrong += self._definitions(found, moment)
        wrong += self._messages(found, moment)
        for queue, messages in found.queues.items():
            wrong += self._order(queue, messages)
        return wrong + self.flags(found, moment)

    def _definitions(self, found: Found, moment: int) -> list[str]:
        wrong = []
        for name, queue in self.queues.items():
            if queue.promised <= moment < queue.unasked and name not in found.queues:
                wrong.append(f"queue {name} was declared and is not there")
            if queue.ended <= moment and name in found.queues:
                wrong.append(f"queue {name} was deleted and is there")
        wrong += [f"queue {name} is not of here" for name in found.queues.keys() - self.queues]
        return wrong

    def _messages(self, found: Found, moment: int) -> list[str]:
        wrong = []
        places: dict[bytes, list[str]] = {}
        for queue, messages in found.queues.items():
            for body, _ in messages:
                places.setdefault(body, []).append(queue)
        for body, queues in places.items():
            if body not in self.copies:
                wrong.append(f"altered or unknown: {body[:30]!r} in {queues}")
            elif len(set(queues)) != len(queues) and not self.copies[body][0].moves:
                wrong.append(f"twice in one queue: {body[:30]!r} in {queues}")
        for body, copies in self.copies.items():
            allowed = {
                home
                for copy in copies
                for since, home in copy.homes
                if since <= moment and copy.gone > moment
            }
            there = set(places.get(body, ()))
            if there - allowed:
                wrong.append(f"not to be there (any more): {body[:30]!r} in {there - allowed}")
            for copy in copies:
                homes = {home for since, home in copy.homes if since <= moment}
                if copy.confirmed <= moment < copy.forgotten and not there & homes:
                    wrong.append(f"lost: {body[:30]!r}, confirmed in {homes}")
        return wrong

    def _order(self, queue: str, messages: list[tuple[bytes, bool]]) -> list[str]:
        wrong = []
        last: dict[int, int] = {}
        for body, _ in messages:
            for copy in self.copies.get(body, ()):
                if copy.homes[0][1] != queue or copy.is_held:
                    continue
                if copy.number < last.get(copy.level, -1):
                    wrong.append(f"out of order in {queue}: {body[:30]!r}")
                last[copy.level] = copy.number
        return wrong

    def flags(self, found: Found, moment: int) -> list[str]:
        """What was delivered before and is not marked so."""
        return [
            f"delivered before and not marked so: {body[:30]!r} in {queue}"
            for queue, messages in found.queues.items()
            for body, redelivered in messages
            for copy in self.copies.get(body, ())
            if copy.taken <= moment
            and not redelivered
            and copy.homes[0][1] == queue
            and len(copy.homes) == 1
        ]
