"""A disk that is full on the day of a run: the true reason, no end of the process, another try."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from management.reports import client, process, runs
from management.reports.access import ReportAccess
from management.reports.job import _in_short
from management.reports.orders import Outcome
from management.reports.runs import Progress, Run, Runs
from management.reports.schedule import Entry
from tests.reports.conftest import reports_in

REPORT = "traffic"


class Disk:
    """What writing a record meets."""

    full = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk, write, replace = Disk(), Runs.write, runs.replace

    def check_room() -> None:
        if disk.full:
            raise OSError(28, "No space left on device")

    def write_if_room(of: Runs, run: Run, *, sync: bool = True) -> None:
        check_room()
        write(of, run, sync=sync)

    def replace_if_room(path: Path, data: bytes, *, sync: bool = True) -> None:
        check_room()
        replace(path, data, sync=sync)

    monkeypatch.setattr(Runs, "write", write_if_room)
    monkeypatch.setattr(runs, "replace", replace_if_room)
    return disk


class MadeUpJob:
    """A job that tells its progress and ends well, while the disk fills up."""

    was_cancelled = False

    def standing(self) -> None:
        return None

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    is_kept = False

    async def run(self, _: object, __: object, tell: Callable[[Progress], None]) -> Outcome:
        self.disk.full = True
        tell(Progress(step="computing"))
        return Outcome(rows_written=3)


def test_a_disk_that_fills_up_during_a_run_does_not_fail_it(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "KeptJob", lambda _: MadeUpJob(disk))
    working = reports_in(tmp_path)
    run = working.ask(REPORT, "anna")
    asyncio.run(working._run(run))
    access = ReportAccess(tmp_path)
    assert access.runs.read(REPORT, run.run_id).state == "running", "the disk knows no better"
    status = asyncio.run(working._answer(b"\x81\xa4verb\xa6status"))
    assert [(one.run_id, one.state) for one in status.unwritten] == [(run.run_id, "done")]
    monkeypatch.setattr(client, "status", lambda _: status)
    assert access.find(REPORT, run.run_id).state == access.standing(REPORT).runs[0].state == "done"
    working._records.write_again()
    disk.full = False
    working._records.write_again()
    assert access.runs.read(REPORT, run.run_id).rows_written == 3
    assert working._records.unwritten == []


def test_a_request_and_a_schedule_survive_a_full_disk(tmp_path: Path, disk: Disk) -> None:
    working = reports_in(tmp_path)
    disk.full = True
    with pytest.raises(OSError, match="No space left"):
        working.ask(REPORT, "anna")
    answer = asyncio.run(working._answer(b"\x82\xa4verb\xa3run\xa6report\xa7traffic"))
    assert "is full" in answer.error and "MB are free" in answer.error
    entry = Entry(REPORT, "20 0 * * *", {})
    working._timetable.refresh([entry], 1000)
    working._ask_on_schedule(entry, 1000)
    assert working._timetable.next_at() == {REPORT: 1000 + process.SCHEDULE_AGAIN_MS}
    assert working._waiting == type(working._waiting)()
    assert working._runs.all(REPORT) == []
    disk.full = False
    working._ask_on_schedule(entry, 1000)
    assert len(working._waiting) == 1


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), OSError(122, "Disk quota exceeded"),
     RuntimeError("Job aborted\n\tat java.io.IOException: No space left on device")],
)  # fmt: skip
def test_it_says_that_the_disk_is_full_whoever_notices(tmp_path: Path, error: Exception) -> None:
    assert _in_short(error, tmp_path).startswith(f"the disk of {tmp_path} is full (")
    assert "nothing is lost" in _in_short(error, tmp_path)
    assert _in_short(ValueError("x"), tmp_path) == "ValueError: x"


def test_what_failed_or_was_cancelled_can_be_retried_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, asked = ReportAccess(tmp_path), []

    def run(_: Path, report: str, user: str, parameters: dict[str, str]) -> str:
        asked.append((report, user, parameters))
        return "new"

    monkeypatch.setattr(client, "run", run)
    monkeypatch.setattr(client, "status", lambda _: client.Reply())
    old: Any = access.runs.new(REPORT, "bert", 0, {"by": "user"})
    for state in ("waiting", "done"):
        old.state = state
        access.runs.write(old)
        with pytest.raises(ValueError, match="can be retried"):
            access.retry(REPORT, old.run_id, "anna")
    for state in ("failed", "cancelled"):
        old.state = state
        access.runs.write(old)
        assert access.retry(REPORT, old.run_id, "anna") == "new"
    assert asked == [(REPORT, "anna", {"by": "user"})] * 2


def test_it_says_what_to_install_where_the_package_has_no_reports(tmp_path: Path) -> None:
    error = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    assert "pip install 'leveret[reports]'" in _in_short(error, tmp_path)
