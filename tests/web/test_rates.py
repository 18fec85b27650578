"""Under a constant load tiles, legends, charts, rows and API rates are what the load is.

The long form, at 10,000 queues for a minute: `python -m tests.bench.rates`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.appliance import Appliance
from tests.bench import rates
from tests.web.constant_load import COUNTED, Reading, Truth, constant_load

QUEUES = 300
RATE = 400
SECONDS = 2


def test_all_that_is_shown_of_a_constant_load_is_within_five_per_cent(
    make_leveret: Callable[..., Appliance], browser: Browser, tmp_path: Path
) -> None:
    leveret = make_leveret()
    rates.declare(leveret, QUEUES)
    notes = tmp_path / "notes"
    with constant_load(leveret.amqp_url, QUEUES, RATE, notes):
        found = rates.read(leveret, browser, SECONDS)
    truth = Truth(notes)
    assert [reading for reading in found if truth.is_off(reading)] == []
    said = {(reading.where, reading.name) for reading in found}
    for name in COUNTED:
        assert {f"{page} legend" for page in ("overview", "virtual host", "queue")} <= {
            where for where, about in said if about == name
        }
    for page, place in (("overview", "value"), ("queue", "chart"), ("list of queues", "value")):
        assert (f"{page} {place}", "publish") in said


def test_a_rate_that_is_off_is_noticed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    lines = [f"[{second / 10}, {second * 10}, {second * 10}]\n" for second in range(200)]
    notes.write_text("".join(lines))
    truth = Truth(notes)

    def reading(value: float, share: float = 1.0) -> Any:
        return Reading(15.0, "somewhere", "publish", value, share)

    assert not truth.is_off(reading(100.0))
    assert not truth.is_off(reading(25.0, share=0.25))
    for value in (0.0, 90.0, 110.0, float("nan")):
        assert truth.is_off(reading(value))
