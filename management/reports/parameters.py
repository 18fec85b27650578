"""What a run of a report is asked for: a range of time, a grain, by what, which virtual host."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from .shapes import Grain, Report, View

NAMES = ("from", "to", "grain", "by", "vhost")
VHOST_LENGTH_MAX = 1024


@dataclass(frozen=True)
class Chosen:
    """Parameters as a report's job uses them. `end` is not included; None is now. The tables hold
    whole hours, days or months, so that a report counts each of them that the range touches."""

    report: Report
    view: View
    grain: Grain
    first: datetime | None
    end: datetime | None
    vhost: str

    def range(self, now: datetime) -> tuple[datetime, datetime | None]:
        """From when and to when rows count, both at the beginning of an hour, day or month."""
        if self.report.compares:
            return self._whole_range(now)
        first = self.first or (self.end or now) - timedelta(days=self.report.days)
        return _floor(first, self.grain), self.end and _ceiling(self.end, self.grain)

    def _whole_range(self, now: datetime) -> tuple[datetime, datetime]:
        """The range without the hour or day under way, of which a part would be compared with a
        whole one. That one counts only where nothing else is asked for."""
        end = _floor(now, self.grain)
        if self.end:
            end = min(end, _ceiling(self.end, self.grain))
        first = _floor(self.first or end - timedelta(days=self.report.days), self.grain)
        return first, max(end, _next(first, self.grain))

    def before(self, now: datetime) -> datetime:
        """The beginning of what has to be read: earlier if the report compares, by the length of
        the range."""
        first, end = self.range(now)
        if not self.report.compares or end is None:
            return first
        return _floor(first - (end - first), self.grain)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a command that stand for `NAMES`."""
    parser.add_argument(
        "--from", dest="first", metavar="TIME", help="2026-11-21 or 2026-11-21T10:00"
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="not included; now if left out")
    parser.add_argument("--grain", choices=("hour", "day", "month"), help="from which table")
    parser.add_argument("--by", help="queue, exchange, user or vhost, as the report has them")
    parser.add_argument("--vhost", help="this virtual host only")


def read(report: Report, given: Mapping[str, str]) -> tuple[Chosen, dict[str, str]]:
    """Parameters and the canonical text of them, without defaults: two runs of the same text answer
    the same question. Names other than NAMES are left alone. Raises ValueError with what is wrong.
    """
    texts = {name: given[name].strip() for name in NAMES if given.get(name, "").strip()}
    view = report.view(texts.get("by", ""))
    grain = texts.get("grain", report.grains[0])
    grains = view.grains or report.grains
    if grain not in grains:
        allowed = ", ".join(grains)
        raise ValueError(f"report {report.name} has no grain {grain!r}: grain is one of {allowed}")
    first, end = (_moment(name, texts.get(name)) for name in ("from", "to"))
    if first and end and first >= end:
        raise ValueError(f"from ({texts['from']}) is not before to ({texts['to']})")
    # Whole minutes, as the canonical text has them: it is read again and must mean the same.
    first = first and first.replace(second=0, microsecond=0)
    if end and (end.second or end.microsecond):
        end = end.replace(second=0, microsecond=0) + timedelta(minutes=1)
    vhost = texts.get("vhost", "")
    if len(vhost) > VHOST_LENGTH_MAX:
        raise ValueError(f"vhost has more than {VHOST_LENGTH_MAX} characters")
    chosen = Chosen(report, view, grain, first, end, vhost)
    canonical = {
        "from": f"{first:%Y-%m-%dT%H:%MZ}" if first else "",
        "to": f"{end:%Y-%m-%dT%H:%MZ}" if end else "",
        "grain": grain if grain != report.grains[0] else "",
        "by": view.name if view is not report.views[0] else "",
        "vhost": vhost,
    }
    return chosen, {name: text for name, text in canonical.items() if text}


def _moment(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{name} is {text[:40]!r}, not a date such as 2026-11-21 or 2026-11-21T10:00 (UTC)"
        ) from None
    if not 2000 <= moment.year < 9999:
        raise ValueError(f"{name} is {text[:40]!r}: years are 2000 to 9998")
    return moment


def _floor(moment: datetime, grain: Grain) -> datetime:
    moment = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if grain != "hour":
        moment = moment.replace(hour=0)
    return moment.replace(day=1) if grain == "month" else moment


def _next(start: datetime, grain: Grain) -> datetime:
    """The beginning of the hour, day or month after the one that begins at `start`."""
    if grain == "month":
        return _floor(start + timedelta(days=31), grain)
    return start + (timedelta(hours=1) if grain == "hour" else timedelta(days=1))


def _ceiling(moment: datetime, grain: Grain) -> datetime:
    """The beginning of an hour, day or month at this moment or next after it."""
    start = _floor(moment, grain)
    return start if start == moment else _next(start, grain)
