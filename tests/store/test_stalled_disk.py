"""A disk that does not answer stops confirms and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server.stall import Stall
from broker.store.failed_reads import FailedReads
from tests.conftest import Make
from tests.store.stalled_disk import stall, stallable


def test_a_stalled_disk_stops_confirms_but_not_heartbeats_or_consumers(tmp_path: Path) -> None:
    broker = stallable(tmp_path)
    try:
        stall(tmp_path, broker, 1.0)
    finally:
        broker.stop()


def test_it_says_once_that_the_disk_stalls_and_once_that_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Any] = []
    broker = SimpleNamespace(
        config=SimpleNamespace(disk_stall_after=5.0),
        emit=lambda event, data: events.append((event, data["name"])),
        persister=SimpleNamespace(failed_reads=FailedReads()),
    )
    watched = Stall(broker)  # type: ignore[arg-type]
    for waited in (0.0, 4.9, 5.0, 6.0, 7.5, 0.2, 0.0):
        watched.judge(waited)
    assert events == [("alarm.set", "stalled disk"), ("alarm.cleared", "stalled disk")]
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "stalled disk: a sync has wait",
        "the disk answers again after ",
    ]
    assert watched.longest_s == 7.5
    assert watched.rows() == []


@pytest.mark.parametrize("value", ["soon", "0", "-1"])
def test_it_refuses_a_stall_that_is_no_time(make_broker: Make, value: str) -> None:
    broker = make_broker(start=False, disk_stall_after=value)
    broker.start(wait=False)
    assert broker.wait() == 78
