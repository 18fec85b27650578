"""Whom the throttle trusts: few enough to be forgotten at once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from broker.access.throttle import Limits, Throttle


def test_a_user_is_forgotten_in_one_step_however_many_are_trusted() -> None:
    class Whole(OrderedDict[Any, Any]):
        def __iter__(self) -> Any:
            raise AssertionError("all pairs are walked over")

    throttle = Throttle(lambda: 0.0, Limits())
    throttle._trusted = Whole()
    for number in range(3_000):
        throttle.trust("ada", f"192.0.{number >> 8}.{number & 255}")
        throttle.trust(f"user-{number}", "192.0.2.1")
    throttle.forget("ada")
    throttle.forget("nobody")
    assert not throttle.is_trusted("ada", "192.0.11.183")
    assert throttle.is_trusted("user-2999", "192.0.2.1")
    assert throttle._trusted_pairs == 3_000


def test_addresses_of_one_user_and_pairs_of_all_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.access.throttle._TRUSTED_KEPT", 5_000)
    throttle = Throttle(lambda: 0.0, Limits())
    for number in range(1_500):
        throttle.trust("ada", f"a{number}")
    assert not throttle.is_trusted("ada", "a0")
    assert throttle.is_trusted("ada", "a1499")
    for number in range(10_000):
        throttle.trust(f"user-{number}", "a")
    assert throttle._trusted_pairs <= 5_000
    assert throttle._trusted_pairs == sum(map(len, throttle._trusted.values()))
    assert throttle.is_trusted("user-9999", "a")
