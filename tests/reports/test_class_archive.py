"""Spark's classes in a file: made by a process of its own, and mapped by every later start."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from management.reports import class_archive, class_archive_maker, java
from management.reports.java import Java

pytest.importorskip("pyspark")


def test_it_is_made_for_the_java_and_the_spark_that_there_are(archive: Path) -> None:
    runtime = java.find(None, os.environ, archive.parent)
    assert class_archive.path_of(archive.parent, runtime) == archive
    assert archive.stat().st_size > 50 << 20


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


async def test_it_is_made_when_no_spark_runs_and_there_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"busy": True, "available": class_archive_maker.MEMORY - 1}
    monkeypatch.setattr(class_archive_maker, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(class_archive_maker, "_available", lambda: state["available"])
    made = tmp_path / "made"
    maker = class_archive_maker.Maker(tmp_path, None, lambda: bool(state["busy"]))
    maker._command = ["touch", str(made)]
    maker.begin(256 << 20)
    for change in ({"busy": False}, {"busy": True, "available": class_archive_maker.MEMORY}):
        await asyncio.sleep(0.02)
        assert not made.exists()
        state |= change
    await asyncio.sleep(0.02)
    assert not made.exists()
    state["busy"] = False
    assert maker._task is not None
    await asyncio.wait_for(maker._task, 60)
    assert made.exists()


def test_it_knows_how_much_memory_is_available() -> None:
    assert 1 << 20 < class_archive_maker._available() < 1 << 50
