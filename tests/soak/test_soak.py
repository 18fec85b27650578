"""The short form of `make soak`: one phase with a kill in the middle."""

from __future__ import annotations

from pathlib import Path

from tests.soak.attackers import KINDS
from tests.soak.soak import Soak
from tests.soak.whole import Quiet


def test_no_message_is_lost_under_mixed_load_attacks_and_a_kill(tmp_path: Path) -> None:
    soak = Soak(tmp_path, seconds=0, seed=3, phase=4.0, rest=0.0, reports_every=0)
    try:
        verdict = soak.go()
    finally:
        if soak.whole.appliance.process is not None:
            soak.whole.appliance.kill()
    assert verdict.clean, str(verdict)
    assert not soak.trouble
    assert soak.kills == 1
    assert verdict.confirmed > 100
    assert {name.partition(",")[0] for name in soak.attacks} == KINDS.keys()


def test_what_a_quiet_point_has_more_than_the_first_is_told() -> None:
    first = Quiet(600, 4, {"broker": 100 << 20}, {"broker": 20}, 10, 5)
    assert not Quiet(700, 4, {"broker": 109 << 20}, {"broker": 20}, 10, 9).grown(first)
    wrong = Quiet(800, 4, {"broker": 111 << 20}, {"broker": 21}, 11, 9).grown(first)
    assert wrong == [
        "broker has 111.0 MiB at 800 s, had 100.0 at 600 s",
        "broker has 21 descriptors at 800 s, had 20",
        "11 files at 800 s, were 10",
    ]
