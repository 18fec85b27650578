"""What a report may be asked for, and how two questions are the same."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from management.reports import parameters
from management.reports.catalog import REPORTS

NOW = datetime(2026, 11, 21, 10, 17, tzinfo=UTC)
TRAFFIC = REPORTS["traffic"]


def test_the_defaults_are_the_first_grain_and_view_and_the_last_days() -> None:
    chosen, canonical = parameters.read(TRAFFIC, {"from": " ", "q": "orders", "page": "7"})
    assert (chosen.grain, chosen.view.name, chosen.vhost, canonical) == ("day", "queue", "", {})
    assert chosen.range(NOW) == (datetime(2026, 10, 21, tzinfo=UTC), None)


def test_two_spellings_of_a_question_are_the_same() -> None:
    one = {"from": "2026-11-01", "grain": "day", "by": "queue", "to": "2026-11-02T00:00+00:00"}
    other = {"from": "2026-11-01T01:00+01:00", "to": "2026-11-02T00:00Z"}
    assert parameters.read(TRAFFIC, one)[1] == parameters.read(TRAFFIC, other)[1]
    _, canonical = parameters.read(TRAFFIC, one | {"by": "user", "grain": "hour", "vhost": "shop"})
    assert parameters.read(TRAFFIC, canonical)[1] == canonical
    assert canonical["by"] == "user" and canonical["grain"] == "hour"


def test_a_report_that_compares_reads_as_much_before() -> None:
    given = {"from": "2026-11-08", "to": "2026-11-15"}
    chosen, _ = parameters.read(REPORTS["changes"], given)
    assert chosen.before(NOW) == datetime(2026, 11, 1, tzinfo=UTC)
    chosen, _ = parameters.read(TRAFFIC, given | {"grain": "month"})
    assert chosen.before(NOW) == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "now", "days"),
    [
        # By default, and up to a time that is to come: without today.
        ({}, "2026-11-22T00:20", (8, 15, 22)),
        ({}, "2026-11-22T14:00", (8, 15, 22)),
        ({"from": "2026-11-15", "to": "2026-11-30"}, "2026-11-22T14:00", (8, 15, 22)),
        # Days of which a part is asked for are compared as a whole.
        ({"from": "2026-11-15T10:00", "to": "2026-11-16T12:00"}, "2026-11-22T14:00", (13, 15, 17)),
        ({"to": "2026-11-16T12:00"}, "2026-11-22T14:00", (3, 10, 17)),
        # Today alone is compared with yesterday.
        ({"from": "2026-11-22T10:00"}, "2026-11-22T14:00", (21, 22, 23)),
        ({"from": "2026-11-22", "to": "2026-11-22T12:00"}, "2026-11-22T14:00", (21, 22, 23)),
    ],
)
def test_periods_that_are_compared_are_whole_days_of_the_same_number(
    given: dict[str, str], now: str, days: tuple[int, int, int]
) -> None:
    chosen, _ = parameters.read(REPORTS["changes"], given)
    at = datetime.fromisoformat(f"{now}Z")
    before, first, end = (datetime(2026, 11, day, tzinfo=UTC) for day in days)
    assert (chosen.before(at), chosen.range(at)) == (before, (first, end))


def test_periods_that_are_compared_are_whole_hours_of_the_same_number() -> None:
    chosen, _ = parameters.read(REPORTS["changes"], {"grain": "hour", "from": "2026-11-21T08:30"})
    hours = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (6, 8, 10)]
    assert [chosen.before(NOW), *chosen.range(NOW)] == hours
    chosen, _ = parameters.read(REPORTS["changes"], {"grain": "hour", "from": "2026-11-21T10:10"})
    hours = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (9, 10, 11)]
    assert [chosen.before(NOW), *chosen.range(NOW)] == hours


@pytest.mark.parametrize(
    ("first", "end", "grain", "whole"),
    [
        ("2026-11-20T02:00", "2026-11-20T12:00", "day", ("2026-11-20", "2026-11-21")),
        ("2026-11-20T02:10", "2026-11-20T02:20", "hour", ("2026-11-20T02:00", "2026-11-20T03:00")),
        ("2026-11-20", "2026-12-01", "month", ("2026-11-01", "2026-12-01")),
        ("2026-12-20", "2026-12-31", "month", ("2026-12-01", "2027-01-01")),
        ("2026-11-20T02:00:10", "2026-11-20T02:00:50", "day", ("2026-11-20", "2026-11-21")),
        ("2026-11-20T23:00", "2026-11-21T00:00:30", "day", ("2026-11-20", "2026-11-22")),
    ],
)
def test_a_range_that_touches_an_hour_day_or_month_has_the_whole_of_it(
    first: str, end: str, grain: str, whole: tuple[str, str]
) -> None:
    chosen, canonical = parameters.read(TRAFFIC, {"from": first, "to": end, "grain": grain})
    expected = tuple(datetime.fromisoformat(text).replace(tzinfo=UTC) for text in whole)
    assert chosen.range(NOW) == expected
    again, _ = parameters.read(TRAFFIC, canonical)
    assert again == chosen, "the job reads what the record says"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"from": "yesterday"}, "from is 'yesterday', not a date such as"),
        ({"to": "1000-01-01"}, "years are 2000 to 9998"),
        ({"from": "2026-11-02", "to": "2026-11-02"}, "is not before to"),
        ({"grain": "minute"}, "grain is one of day, hour, month"),
        ({"by": "../x"}, "by is one of queue, exchange, user, vhost"),
        ({"vhost": "v" * 1025}, "more than 1024 characters"),
    ],
)
def test_a_wrong_parameter_is_told_with_what_is_right(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parameters.read(TRAFFIC, given)
