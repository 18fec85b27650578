"""What was promised of a stream at each moment of a recording, and whether a recovered one keeps
it. Moments are those of `tests.crash.promises`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.crash.promises import NEVER


@dataclass
class Entry:
    """One message of the stream: it has to be there from `confirmed` until retention or a purge may
    take it (`forgotten`), and must not be there from `gone` on."""

    offset: int
    body: bytes
    asked: int
    confirmed: int = NEVER
    forgotten: int = NEVER
    gone: int = NEVER


@dataclass
class Kept:
    """A consumer is done with `offset`: so from `asked` on it may be on disk, from `synced` on it
    is."""

    offset: int
    asked: int
    synced: int = NEVER


@dataclass
class StreamPromises:
    """Everything that was asked of one stream."""

    entries: list[Entry] = field(default_factory=list)
    places: dict[str, list[Kept]] = field(default_factory=dict)

    def violations(
        self, rows: Sequence[tuple[int, bytes]], places: Mapping[str, int], moment: int
    ) -> list[str]:
        """What a recovery from a state of this moment got wrong: `rows` are the offsets and bodies
        that a reader gets, `places` what the stream keeps for its consumers."""
        return self._messages(rows, moment) + self._places(places, moment)

    def _messages(self, rows: Sequence[tuple[int, bytes]], moment: int) -> list[str]:
        wrong = []
        offsets = [offset for offset, _ in rows]
        if offsets != sorted(set(offsets)):
            wrong.append(f"offsets out of order: {offsets}")
        known = {entry.offset: entry for entry in self.entries if entry.asked <= moment}
        for offset, body in rows:
            entry = known.get(offset)
            if entry is None or entry.body != body:
                wrong.append(f"stream: {body[:30]!r} at offset {offset} is not of there")
            elif entry.gone <= moment:
                wrong.append(f"stream: {body[:30]!r} was purged and is there")
        there = set(offsets)
        wrong += [
            f"stream: lost {entry.body[:30]!r} at offset {entry.offset}"
            for entry in self.entries
            if entry.confirmed <= moment < entry.forgotten and entry.offset not in there
        ]
        return wrong

    def _places(self, places: Mapping[str, int], moment: int) -> list[str]:
        wrong = []
        for tag, rows in self.places.items():
            asked = {row.offset for row in rows if row.asked <= moment}
            least = max((row.offset for row in rows if row.synced <= moment), default=-1)
            found = places.get(tag, -1)
            if found >= 0 and found not in asked:
                wrong.append(f"stream: place {found} of {tag} is not one that was kept: {asked}")
            if found < least:
                wrong.append(f"stream: {tag} was kept at {least} and is at {found}")
        wrong += [f"stream: {tag} has no place" for tag in places.keys() - self.places.keys()]
        return wrong
