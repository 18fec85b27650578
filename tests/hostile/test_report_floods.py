"""Floods of requests for reports: bounded for all and for a user, and the schedule finds room."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.settings.config import Config
from management.reports import runs
from management.reports.process import Reports

REPORT = "traffic"


@pytest.fixture
def reports(tmp_path: Path) -> Reports:
    """It computes nothing: what is asked for waits."""
    return Reports(Config(data_dir=tmp_path), tmp_path / "reports")


def days(number: int) -> dict[str, str]:
    """A period of its own for each number."""
    return {"from": "2026-01-01", "to": f"2026-{2 + number // 28:02}-{1 + number % 28:02}"}


def flood(reports: Reports, user: str, count: int = 200) -> str:
    """Different runs until one is refused; why."""
    for number in range(count):
        try:
            reports.ask(REPORT, user, {**days(number), "vhost": user})
        except ValueError as error:
            return str(error)
    return ""


def waiting(reports: Reports) -> int:
    return sum(1 for run in reports._runs.all(REPORT) if run.state == "waiting")


def test_a_thousand_requests_for_the_same_are_one_run(reports: Reports) -> None:
    assert len({reports.ask(REPORT, "mallory").run_id for _ in range(1000)}) == 1
    assert waiting(reports) == 1


def test_one_user_fills_a_quarter_of_the_places(reports: Reports) -> None:
    refusal = flood(reports, "mallory")
    assert "25 runs that 'mallory' asked for wait already" in refusal
    assert "reports_waiting_max" in refusal
    assert waiting(reports) == 25
    reports.ask(REPORT, "anna")


def test_all_users_fill_all_places_and_the_schedule_still_finds_one(reports: Reports) -> None:
    for user in ("a", "b", "c", "d"):
        flood(reports, user)
    assert "100 runs wait already (reports_waiting_max)" in flood(reports, "e")
    # A refusal here ended the reports process.
    reports.ask(REPORT, None)
    assert waiting(reports) == 101


def test_no_run_that_waits_is_forgotten(reports: Reports) -> None:
    for user in ("a", "b", "c", "d"):
        flood(reports, user)
    # As it is done at the end of each run.
    reports._runs.forget_old(REPORT)
    assert waiting(reports) == 100, "the oldest were deleted, and to begin one ended the process"


def test_runs_that_are_asked_for_and_cancelled_do_not_pile_up(reports: Reports) -> None:
    for number in range(runs.RUNS_KEPT + 20):
        run = reports.ask(REPORT, "mallory", days(number))
        reports.cancel(REPORT, run.run_id)
    reports._records.close(60.0)  # a thread removes the old ones
    assert len(reports._runs.all(REPORT)) <= runs.RUNS_KEPT + 1
