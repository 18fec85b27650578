"""The short form of `python -m tests.crash`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.leveret import Leveret
from tests.crash.loop import Crash
from tests.crash.resend import MODES, Resend


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Leveret]:
    broker = Leveret(tmp_path / "broker")
    yield broker
    broker.stop()


@pytest.mark.parametrize("seed", [1])
def test_it_loses_alters_and_reorders_nothing_confirmed_when_killed_under_load(
    victim: Leveret, tmp_path: Path, seed: int
) -> None:
    crash = Crash(victim, tmp_path / "journals", run=seed, seed=seed)
    crash.options = [[], ["--segment-size", "65536"]]
    crash.clean_stops = 0.2
    crash.log = tmp_path / "broker/output"
    crash.prepare()
    for _ in range(5):
        verdict = crash.cycle()
        assert verdict.clean, str(verdict)
    assert verdict.confirmed > 1000


@pytest.mark.parametrize("mode", MODES)
def test_it_loses_nothing_in_any_mode_of_confirms_when_the_publisher_sends_again(
    victim: Leveret, mode: str
) -> None:
    resend = Resend(victim, mode, messages=1000, kills=1, run=7)
    resend.go()
    assert len(resend.confirmed) >= 1000
    assert (resend.lost, resend.early, resend.altered) == ([], [], 0)
