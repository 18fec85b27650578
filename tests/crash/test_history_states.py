"""Crash states of a history, its index and its tier: a few of them, and that a fault is seen."""

from __future__ import annotations

import random
import shutil

from tests.crash.explore import scratch
from tests.crash.history_states import Recorded, explore

ROUNDS = 20


def test_confirmed_messages_have_a_record_that_is_found_in_states_of_a_power_cut() -> None:
    count, wrong = explore(ROUNDS, wanted=12, seed=3)
    assert not wrong, "\n".join(wrong)
    assert count >= 12


def test_a_record_that_is_lost_is_seen() -> None:
    base = scratch()
    try:
        recorded = Recorded(base, rounds=6, seed=3)
        *_, (moment, _, state) = recorded.states(random.Random(1))
        assert recorded.wrong(moment, state, base / "whole") == []
        newest = max(path for path in state if f"{recorded.history}/msgs." in path)
        content = state[newest]
        assert content is not None
        wrong = recorded.wrong(moment, {**state, newest: content[:200]}, base / "cut")
        assert any("was confirmed and has 0 records" in each for each in wrong), wrong
    finally:
        shutil.rmtree(base)
