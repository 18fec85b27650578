"""When the reports are computed next. Schedules are cron's five fields, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from croniter import croniter


def next_at_ms(schedule: str, now_ms: int) -> int:
    """The first moment of the schedule after `now_ms`. Raises ValueError for a bad schedule."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    following: datetime = croniter(schedule, now).get_next(datetime)
    return int(following.timestamp() * 1000)
