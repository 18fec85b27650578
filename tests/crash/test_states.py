"""Crash states: what the enumeration makes of a recording, and a short run of it."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

import pytest

from tests.crash.explore import Explored, explore
from tests.crash.profiles import PROFILES
from tests.crash.states import CrashDisk, Event, State, lay_out

ROOT = "/data"
STATES = 20
SEEDS = dict(enumerate(PROFILES))
"""Seed of a workload -> its kind."""


def disk_after(*events: tuple[Event, bytes | None]) -> CrashDisk:
    """A disk that has seen these operations."""
    crash_disk = CrashDisk(ROOT)
    for event, data in events:
        crash_disk.take(event, data)
    return crash_disk


def opened(name: str) -> tuple[Event, None]:
    return ("open", f"{ROOT}/{name}", 0, 0, 0), None


def written(name: str, offset: int, data: bytes) -> tuple[Event, bytes]:
    return ("write", f"{ROOT}/{name}", offset, len(data), 0), data


def done(kind: str, path: str = ROOT) -> tuple[Event, None]:
    return (kind, path, 0, 0, 0), None


def contents(crash_disk: CrashDisk) -> dict[str, State]:
    """Label -> state."""
    return dict(crash_disk.states(random.Random(1)))


def test_a_synced_file_whose_entry_is_not_synced_may_be_gone() -> None:
    crash_disk = disk_after(opened("a"), written("a", 0, b"x"), done("sync", f"{ROOT}/a"))
    assert contents(crash_disk)["none"] == {ROOT: None}
    assert contents(crash_disk)["all"] == {ROOT: None, f"{ROOT}/a": b"x"}


def test_an_entry_that_is_synced_may_be_a_file_without_its_bytes() -> None:
    crash_disk = disk_after(opened("a"), written("a", 0, b"x"), done("sync_directory"))
    assert contents(crash_disk)["none"] == {ROOT: None, f"{ROOT}/a": b""}


def test_a_sync_of_the_file_system_covers_everything() -> None:
    crash_disk = disk_after(opened("a"), written("a", 0, b"x"), done("sync_file_system"))
    assert contents(crash_disk) == {"all": {ROOT: None, f"{ROOT}/a": b"x"}}


def test_a_write_that_is_missing_before_one_that_is_there_leaves_zeros() -> None:
    crash_disk = disk_after(
        opened("a"), done("sync_directory"), written("a", 0, b"ab"), written("a", 2, b"cd")
    )
    found = {state[f"{ROOT}/a"] for state in contents(crash_disk).values()}
    assert found >= {b"", b"ab", b"\0\0cd", b"abcd"}


def test_a_write_may_be_cut_at_a_sector() -> None:
    crash_disk = disk_after(
        opened("a"), done("sync_directory"), written("a", 100, bytes([7]) * 1000)
    )
    lengths = {len(state[f"{ROOT}/a"] or b"") for state in contents(crash_disk).values()}
    assert {0, 512, 1024, 1100} <= lengths


def test_a_rename_takes_the_old_name_away_or_leaves_both_as_they_were() -> None:
    crash_disk = disk_after(
        opened("a"),
        written("a", 0, b"old"),
        opened("a.tmp"),
        written("a.tmp", 0, b"new"),
        done("sync_file_system"),
        (("rename", f"{ROOT}/a", 0, 0, 0), f"{ROOT}/a.tmp".encode()),
    )
    found = contents(crash_disk)
    assert found["all"] == {ROOT: None, f"{ROOT}/a": b"new"}
    assert found["none"] == {ROOT: None, f"{ROOT}/a": b"old", f"{ROOT}/a.tmp": b"new"}


def test_a_removed_file_may_come_back_until_its_directory_is_synced() -> None:
    crash_disk = disk_after(
        opened("a"), done("sync_file_system"), (("unlink", f"{ROOT}/a", 0, 0, 0), None)
    )
    assert contents(crash_disk)["none"] == {ROOT: None, f"{ROOT}/a": b""}
    crash_disk.take(*done("sync_directory"))
    assert contents(crash_disk) == {"all": {ROOT: None}}


def test_a_hole_reads_as_zeros() -> None:
    crash_disk = disk_after(
        opened("a"),
        written("a", 0, b"abcdef"),
        done("sync_file_system"),
        (("punch", f"{ROOT}/a", 2, 2, 0), None),
    )
    found = contents(crash_disk)
    assert found["all"][f"{ROOT}/a"] == b"ab\0\0ef"
    assert found["none"][f"{ROOT}/a"] == b"abcdef"


def test_an_operation_that_failed_changes_nothing() -> None:
    crash_disk = disk_after(
        opened("a"), done("sync_file_system"), (("write", f"{ROOT}/a", 0, 1, 28), b"x")
    )
    assert contents(crash_disk) == {"all": {ROOT: None, f"{ROOT}/a": b""}}


def test_a_state_is_laid_out_as_files(tmp_path: Path) -> None:
    state: State = {ROOT: None, f"{ROOT}/a": b"x", f"{ROOT}/b": None, f"{ROOT}/b/c": b""}
    lay_out(state, ROOT, tmp_path / "there")
    assert (tmp_path / "there/a").read_bytes() == b"x"
    assert (tmp_path / "there/b/c").read_bytes() == b""


@lru_cache
def explored(seed: int) -> Explored:
    """A few states of one workload."""
    return explore(seed, steps=60, wanted=STATES)


@pytest.mark.parametrize("seed", SEEDS, ids=SEEDS.values())
def test_every_promise_is_kept_in_the_states_that_a_power_cut_can_leave(seed: int) -> None:
    found = explored(seed)
    assert not found.violations, "\n".join(found.violations)
    assert found.states >= STATES // 2


def test_the_states_of_all_workloads_come_by_every_step_of_the_store() -> None:
    total = Explored()
    for seed in SEEDS:
        total.add(explored(seed))
    assert total.missed == []
