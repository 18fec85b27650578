"""When the reports are computed next. Schedules are cron's five fields, in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from croniter import croniter


def next_at_ms(schedule: str, now_ms: int) -> int:
    """The first moment of the schedule after `now_ms`. Raises ValueError for a bad schedule."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    following: datetime = croniter(schedule, now).get_next(datetime)
    return int(following.timestamp() * 1000)


@dataclass(frozen=True)
class Entry:
    """A question that is computed by itself. `plan` is empty for the settings' own schedule, and so
    is `schedule` where it is never computed."""

    report: str
    schedule: str
    parameters: Mapping[str, str]
    plan: str = ""


class Timetable:
    """The entries, and when each is due next (UTC ms)."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._due: dict[tuple[str, str], int] = {}

    def refresh(self, entries: list[Entry], now_ms: int) -> None:
        """Take these entries in place of those before; what has not changed stays due as it was."""
        new = {(entry.report, entry.plan): entry for entry in entries}
        due = {}
        for key, entry in new.items():
            before = self._entries.get(key)
            if before is not None and before.schedule == entry.schedule and key in self._due:
                due[key] = self._due[key]
            elif entry.schedule:
                due[key] = next_at_ms(entry.schedule, now_ms)
        self._entries, self._due = new, due

    def take(self, now_ms: int) -> list[Entry]:
        """The entries that are due, each of them due anew by its schedule."""
        taken = [self._entries[key] for key, at in self._due.items() if at <= now_ms]
        for entry in taken:
            self._due[entry.report, entry.plan] = next_at_ms(entry.schedule, now_ms)
        return taken

    def postpone(self, entry: Entry, at_ms: int) -> None:
        """Have an entry due at a time, whatever its schedule says."""
        self._due[entry.report, entry.plan] = at_ms

    @property
    def first(self) -> int | None:
        """When something is due next."""
        return min(self._due.values(), default=None)

    def schedules(self) -> dict[str, str]:
        """By report, the schedules of its own question."""
        found: dict[str, str] = {}
        for entry in self._entries.values():
            if not entry.parameters and entry.schedule:
                found.setdefault(entry.report, entry.schedule)
        return {entry.report: found.get(entry.report, "") for entry in self._entries.values()}

    def next_at(self) -> dict[str, int]:
        """By report, when its own question is computed next; 0 for never."""
        found: dict[str, int] = {entry.report: 0 for entry in self._entries.values()}
        for key, at in self._due.items():
            entry = self._entries[key]
            if not entry.parameters:
                found[entry.report] = min(found[entry.report] or at, at)
        return found

    def plans(self) -> dict[str, int]:
        """When each plan is due, by `report/plan`."""
        return {f"{report}/{plan}": at for (report, plan), at in self._due.items() if plan}
