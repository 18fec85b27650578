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
