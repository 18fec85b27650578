"""What the observer of the store is told, carried out elsewhere, makes the replicated files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.store.directory import paths
from tests.crash.profiles import PROFILES
from tests.crash.states import CrashDisk
from tests.crash.workload import Workload

STEPS = 60


def replicated(root: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """The files that the table calls so, by their path in the data directory."""
    names = {path.removeprefix(f"{root}/"): content for path, content in files.items()}
    return {
        name: content for name, content in names.items() if paths.row_of(name).kind == "replicated"
    }


def on_disk(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", PROFILES)
def test_the_replicated_files_are_what_the_observer_was_told(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "data"
    workload = Workload(root, 7, STEPS, PROFILES[kind])
    second = CrashDisk(str(root))
    for event, data in zip(workload.events, workload.data, strict=True):
        second.take(event, data)
    state = dict(second.states(random.Random(1)))["all"]
    told = {path: content for path, content in state.items() if content is not None}
    there, again = replicated(root, on_disk(root)), replicated(root, told)
    assert len(there) > 5
    assert again.keys() == there.keys()
    assert [name for name in there if again[name] != there[name]] == []


@pytest.mark.parametrize("kind", PROFILES)
def test_no_two_operations_on_a_path_are_under_way_whose_order_counts(
    tmp_path: Path, kind: str
) -> None:
    assert Workload(tmp_path / "data", 8, STEPS, PROFILES[kind]).overlaps == 0
