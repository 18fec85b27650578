"""The memory that the broker may have: the machine's, or less where a control group says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.stats.node import memory_limit

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("limits", "own", "limit"),
    [
        ({}, "0::/", MACHINE),
        ({".": "max"}, "0::/", MACHINE),
        ({".": str(64 * MIB)}, "0::/", 64 * MIB),
        ({"a/b.service": str(32 * MIB), "a": "max"}, "0::/a/b.service", 32 * MIB),
        ({"a/b.service": "max", "a": str(16 * MIB)}, "0::/a/b.service", 16 * MIB),
        ({"a": str(16 * MIB)}, "0::/b.service", MACHINE),
        ({".": str(8 * MIB)}, "0::/../../elsewhere", 8 * MIB),
        ({"a": str(16 * MIB)}, "3:memory:/a\n0::/", MACHINE),
    ],
)
def test_the_least_of_the_groups_above_a_process_counts(
    tmp_path: Path, limits: dict[str, str], own: str, limit: int
) -> None:
    for group, text in limits.items():
        (tmp_path / "groups" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / group / "memory.max").write_text(text + "\n")
    (tmp_path / "own").write_text(own + "\n")
    assert memory_limit(tmp_path / "groups", tmp_path / "own") == limit


def test_without_control_groups_the_machine_counts(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "groups", tmp_path / "own") == MACHINE
