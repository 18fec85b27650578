"""Finished files come into the data directory through the broker, which is seen by its observer."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from broker.server.app import Broker
from broker.store.directory.paths import UnknownPath, row_of
from management.broker_client import BrokerClient, BrokerError
from management.reports import runs
from management.reports.placement import (
    Bring,
    BrokerPlacement,
    Link,
    PlacementRefused,
    Remove,
    Step,
    Write,
)
from management.reports.runs import Runs
from tests import inside
from tests.crash.states import CrashDisk
from tests.reports.feeds import TEN
from tests.store import recorder

REPORT = "queue-usage"


@pytest.fixture
def directory() -> Iterator[Path]:
    with inside.in_memory() as directory:
        yield directory


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[Broker]:
    async with inside.running(directory) as broker:
        yield broker


async def carry(directory: Path, *steps: Step) -> None:
    await asyncio.to_thread(BrokerPlacement(directory, patience=5).carry, steps)


def made(directory: Path, name: str, content: bytes) -> str:
    """A finished file of the reports process."""
    path = directory / "run" / "reports" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


async def test_the_observer_is_told_of_all_that_the_broker_brings(
    broker: Broker, directory: Path
) -> None:
    content = random.Random(1).randbytes(700_000)
    tables, report = directory / "usage" / "tables", directory / "reports" / REPORT
    recorder.record(True, True)
    try:
        await carry(
            directory,
            Bring(made(directory, "a.parquet", content), str(tables / "day" / "2026-11.1.parquet")),
            Write(str(tables / "manifest.json"), b"{}"),
            Bring(made(directory, "b.parquet", b"old"), str(report / "x" / "result" / "b.parquet")),
            Link(str(tables / "day" / "2026-11.1.parquet"), str(report / "y" / "piece.parquet")),
            Write(str(tables / "manifest.json"), b'{"generation": 2}'),
            Remove(str(report / "x")),
        )
        events, data = recorder.recorded(), recorder.recorded_bytes()
    finally:
        recorder.record(False)
    second = CrashDisk(str(directory))
    for room in ("usage", "reports"):
        second.take(("mkdir", str(directory / room), 0, 0, 0), None)
    for event, written in zip(events, data, strict=True):
        if "/usage/" in (event[1] or "") or "/reports" in (event[1] or ""):
            second.take(event, written)
    told = {
        path: content
        for path, content in dict(second.states(random.Random(1)))["all"].items()
        if content is not None and "/usage/2026" not in path
    }
    there = {
        str(path): path.read_bytes()
        for room in ("usage/tables", "reports")
        for path in (directory / room).rglob("*")
        if path.is_file()
    }
    assert told == there
    assert len(there) == 3
    pieces = [event for event in events if event[0] == "write" and event[3] == 256 * 1024]
    assert len(pieces) == 2, "a file of 700,000 bytes is copied in slices"
    last = events.index(("rename", str(tables / "manifest.json"), 0, 0, 0))
    synced = [event[1] for event in events[:last] if event[0] in ("sync", "sync_directory")]
    assert str(tables / "day") in synced, "files are on disk before the manifest names them"


@pytest.mark.parametrize(
    "step",
    [
        Write("users.json", b"{}"),
        Write("usage/../users.json", b"{}"),
        Write("/etc/passwd", b""),
        Write("reports//x", b""),
        Write("reports/lock", b""),
        Bring("users.json", "reports/x"),
        Bring("run/../secrets_key", "reports/x"),
        Link("vhosts/x", "reports/x"),
        Remove("usage"),
        Remove("run/reports"),
    ],
)
async def test_paths_that_lead_elsewhere_are_refused(
    broker: Broker, directory: Path, step: Step
) -> None:
    client = BrokerClient(directory / "control.sock")
    try:
        with pytest.raises(BrokerError, match=r"is no path below|is not for the broker") as refused:
            await client.call("files.carry", steps=[step])
    finally:
        await client.close()
    assert refused.value.error == "bad_request"


async def test_an_error_of_the_disk_comes_back_as_it_was(broker: Broker, directory: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        await carry(
            directory, Bring(str(directory / "run" / "none"), str(directory / "reports" / "x"))
        )
    assert error.value.filename == str(directory / "run" / "none")
    assert not list((directory / "reports").glob("x*"))


def test_without_a_broker_files_come_into_their_place_all_the_same(tmp_path: Path) -> None:
    target = tmp_path / "reports" / "a" / "b"
    BrokerPlacement(tmp_path).carry([Bring(made(tmp_path, "b", b"x"), str(target))])
    assert target.read_bytes() == b"x"


def test_a_broker_that_does_not_answer_is_waited_for_and_then_named(tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PlacementRefused, match="the broker is not running or is just starting"):
            BrokerPlacement(tmp_path, patience=0.0).carry(
                [Write(str(tmp_path / "reports" / "x"), b"")]
            )
    finally:
        os.close(lock)


def finished(kept: Runs, at: int, **pieces: bytes) -> runs.Run:
    run = kept.new(REPORT, "anna", at)
    result = kept.path(REPORT, run.run_id) / runs.RESULT
    result.mkdir()
    for name, content in pieces.items():
        (result / f"{name}.parquet").write_bytes(content)
    run.state, run.ended_at = "done", at
    kept.write(run)
    return run


def test_a_run_is_read_where_it_was_computed_until_it_is_in_its_place(tmp_path: Path) -> None:
    kept = Runs(tmp_path / "reports")
    run = finished(kept, TEN, one=b"1")
    (local,) = kept.result(run)
    assert local.is_relative_to(tmp_path / "run")
    assert not (tmp_path / "reports").exists()
    kept.bring(REPORT, run.run_id)
    (brought,) = kept.result(run)
    assert brought.is_relative_to(tmp_path / "reports")
    assert local.exists(), "who reads it there goes on"
    assert kept.read(REPORT, run.run_id) == run
    assert kept.clean(run)
    assert not local.exists()
    assert kept.all(REPORT) == [run]
    assert kept.left() == []


def test_a_piece_of_an_earlier_result_becomes_a_second_name_of_its_file(tmp_path: Path) -> None:
    kept = Runs(tmp_path / "reports")
    first = finished(kept, TEN, old=b"o")
    kept.bring(REPORT, first.run_id)
    second = finished(kept, TEN + 1000, new=b"n")
    (piece,) = kept.result(first)
    os.link(piece, kept.path(REPORT, second.run_id) / runs.RESULT / "old.parquet")
    kept.bring(REPORT, second.run_id)
    new, old = kept.result(second)
    assert new.read_bytes() == b"n"
    assert old.samefile(piece)
    assert old.is_relative_to(tmp_path / "reports")


def test_the_table_names_no_path_twice_and_asks_for_one_that_it_does_not_know() -> None:
    assert row_of("users.json.tmp").kind == "replicated"
    assert row_of("usage/tables/day/2026-11.3.parquet.part").kind == "replicated"
    assert row_of("vhosts/0000000100000001/transient/queues/x").kind == "local"
    with pytest.raises(UnknownPath, match="say there whether it is replicated"):
        row_of("vhosts/0000000100000001/new_room/x")
