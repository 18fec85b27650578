"""The short form of `python -m tests.crash.storm`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.storm import INDEXES, storm

DEEDS = {
    *("purge", "delete", "vhost", "user", "policy", "pause"),
    *("get", "transact", "read_stream"),
}


@pytest.mark.parametrize("index", INDEXES)
def test_it_lives_through_its_operators_and_loses_nothing_confirmed(
    tmp_path: Path, index: str
) -> None:
    found, verdict = storm(tmp_path, index, seconds=4, seed=1)
    assert not found.trouble, str(found)
    assert verdict.clean, str(verdict)
    assert verdict.confirmed > 100
    assert found.counts["published"] > 100
    assert found.counts.keys() & DEEDS, str(found)
    assert found.worst
