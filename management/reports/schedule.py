"""When the reports are computed next. Schedules are cron's five fields, in UTC."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from croniter import croniter

log = logging.getLogger("management.reports.process")


def next_at_ms(schedule: str, now_ms: int) -> int:
    """The first moment of the schedule after `now_ms`. Raises ValueError for a bad schedule, and
    for one whose day never comes, such as February 30."""
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
    """The entries, and when each is due next (UTC ms). One whose schedule has no next time is never
    due."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Entry] = {}
        self._due: dict[tuple[str, str], int] = {}
        self._refused: dict[str, str] = {}
        self._latest_ms = 0

    def refresh(self, entries: list[Entry], now_ms: int) -> None:
        """Take these entries in place of those before. What has not changed stays due as it was;
        if the clock was set back since, no later than its schedule says now."""
        was_ahead = now_ms < self._latest_ms
        self._latest_ms = now_ms
        new = {(entry.report, entry.plan): entry for entry in entries}
        following, refused = _next_times({entry.schedule for entry in entries}, now_ms)
        due = {}
        for key, entry in new.items():
            if entry.schedule not in following:
                continue
            before, at = self._entries.get(key), following[entry.schedule]
            if before is not None and before.schedule == entry.schedule and key in self._due:
                at = min(at, self._due[key]) if was_ahead else self._due[key]
            due[key] = at
        for schedule in sorted(refused.keys() - self._refused.keys()):  # once, not at every look
            names = sorted({entry.report for entry in entries if entry.schedule == schedule})
            log.error(
                "schedule %r has no next time (%s), so these reports are not computed by it: %s;"
                " correct it in the settings or in the plan",
                schedule, refused[schedule], ", ".join(names),
            )  # fmt: skip
        self._entries, self._due, self._refused = new, due, refused

    def take(self, now_ms: int) -> list[Entry]:
        """The entries that are due, each of them due anew by its schedule."""
        self._latest_ms = max(now_ms, self._latest_ms)
        taken = [self._entries[key] for key, at in self._due.items() if at <= now_ms]
        following, _ = _next_times({entry.schedule for entry in taken}, now_ms)
        for entry in taken:
            key = (entry.report, entry.plan)
            if entry.schedule in following:
                self._due[key] = following[entry.schedule]
            else:
                del self._due[key]
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


def _next_times(schedules: set[str], now_ms: int) -> tuple[dict[str, int], dict[str, str]]:
    """When each schedule is due next, and why others, of those that are not empty, never are."""
    found, refused = {}, {}
    for schedule in schedules - {""}:
        try:
            found[schedule] = next_at_ms(schedule, now_ms)
        except ValueError as error:
            refused[schedule] = str(error)
    return found, refused
