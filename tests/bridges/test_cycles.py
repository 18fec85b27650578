"""One of each fault, in any order, while messages are carried; `make bridge-faults` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bridges.faults import Road, run


@pytest.mark.parametrize("kind", ["shovel", "link"])
async def test_nothing_confirmed_is_lost_through_faults_of_all_kinds(
    tmp_path: Path, kind: str
) -> None:
    lines: list[str] = []
    count = len(Road(tmp_path, kind).faults)
    found = await run(tmp_path, kind, count, 1, lines.append)
    assert found.confirmed > 0, lines
    assert found.lost == 0, f"{found}\n{lines}"
    assert set(found.faults.values()) == {1}
    if kind == "shovel":
        assert found.unmarked == 0, f"{found}\n{lines}"
