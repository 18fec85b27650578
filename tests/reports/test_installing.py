"""Spark and Java are installed while the appliance runs: runs wait, and the page says so."""

from __future__ import annotations

import asyncio
import fcntl
import sys
from pathlib import Path

import pytest

from management.reports import client, installing, process
from management.reports.access import ReportAccess
from management.reports.orders import Outcome, Specification
from tests.ops.test_set_up import tool
from tests.reports.conftest import reports_in

REPORT = "traffic"


async def end_well(*_: object) -> Outcome:
    """A job that ends at once."""
    return Outcome()


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / installing.MARK.name
    monkeypatch.setattr(installing, "MARK", path)
    return path


async def test_runs_wait_while_spark_is_being_installed(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.KeptJob, "run", end_well)
    monkeypatch.setattr(installing, "LOOK_SECONDS", 0.001)
    working = reports_in(tmp_path)
    task = asyncio.create_task(working._work_on_runs())
    with mark.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = working.ask(REPORT, "anna")
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert run.state == "waiting"
        status = await working._answer(b"\x81\xa4verb\xa6status")
        assert status.is_installing
        monkeypatch.setattr(client, "status", lambda _: status)
        assert ReportAccess(tmp_path).standing(REPORT).is_installing
    async with asyncio.timeout(60):
        while run.state != "done":  # noqa: ASYNC110 (a run has no event)
            await asyncio.sleep(0.001)
    assert not (await working._answer(b"\x81\xa4verb\xa6status")).is_installing
    working._stopping = True
    working._work.set()
    await task


async def test_a_run_that_begins_says_at_once_whether_spark_is_started_for_it(
    tmp_path: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = reports_in(tmp_path)
    steps = []

    async def note_step(_: object, specification: Specification, *__: object) -> Outcome:
        steps.append(working._runs.read(REPORT, specification.run_id).progress.step)
        return Outcome()

    monkeypatch.setattr(process.KeptJob, "run", note_step)
    for is_kept in (False, True):
        monkeypatch.setattr(process.KeptJob, "is_kept", is_kept)
        await working._run(working.ask(REPORT, "anna", {"by": "user" if is_kept else "vhost"}))
    assert steps == ["starting Spark", "reading the feed"]


def test_an_installation_that_was_interrupted_holds_no_run_up(mark: Path) -> None:
    assert not installing.under_way()
    mark.touch()
    assert not installing.under_way()


def test_the_set_up_says_that_it_installs_the_packages_of_reports(
    mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tool("environment")
    assert environment.INSTALLING.relative_to(environment.VENV) == mark.relative_to(mark.parent)
    assert installing.MARK.parent != Path(sys.prefix), "that of the tests is its own"
    monkeypatch.setattr(environment, "INSTALLING", mark)
    monkeypatch.setattr(environment.os, "nice", lambda _: None)
    seen: list[tuple[list[str], bool]] = []
    monkeypatch.setattr(
        environment,
        "install_packages",
        lambda names, *_: seen.append((names, installing.under_way())),
    )
    environment.install_reports_quietly()
    assert seen == [(["requirements-reports.lock"], True)]
    assert not installing.under_way()
