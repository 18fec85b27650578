"""Spark's classes in a file: made by a process of its own, and mapped by every later start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from management.reports import class_archive
from management.reports.java import Java
from tests.reports.conftest import ARCHIVES, ROOT, ReportsProcess, link_archives
from tests.reports.test_kept import Make, jvms_of, write_feed

pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def archive() -> Path:
    """The archive of this checkout, which later runs of these tests find made."""
    module = "management.reports.class_archive_maker"
    command = [sys.executable, "-m", module, str(ARCHIVES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = ARCHIVES.glob("classes-*.jsa")
    return made


def test_a_start_of_spark_maps_the_archive_that_is_there(archive: Path, make_reports: Make) -> None:
    reports: ReportsProcess = make_reports(spark_keep=3600)
    link_archives(reports.data_dir)
    write_feed(reports)
    run = reports.run("traffic")
    assert (run.state, run.rows_written) == ("done", 1)
    (jvm,) = jvms_of(reports)
    assert archive.name in Path(f"/proc/{jvm}/maps").read_text()
    log = reports.runs.path("traffic", run.run_id) / "log"
    assert b"[cds" not in log.read_bytes(), "Java found nothing wrong with it"


def test_there_is_one_for_each_java_and_none_for_a_path_that_cannot_be_an_option(
    tmp_path: Path,
) -> None:
    java = Java(Path("/usr/lib/jvm/java-17"), 17, "system")
    other = Java(Path("/opt/java-21"), 21, "configured")
    path = class_archive.path_of(tmp_path, java)
    assert class_archive.path_of(tmp_path, other) != path
    assert class_archive.flags(tmp_path, java) == ""
    path.write_bytes(b"")
    assert f"-XX:SharedArchiveFile={path}" in class_archive.flags(tmp_path, java)
    assert class_archive.flags(tmp_path, other) == ""
    odd = tmp_path / "a b"
    odd.mkdir()
    class_archive.path_of(odd, java).write_bytes(b"")
    assert class_archive.flags(odd, java) == ""
