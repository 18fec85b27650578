"""Counters with their rates, in C and slowly."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.stats import Gauge
from broker.stats.gauges import DELIVERING, KINDS
from broker.stats.ordering import figures
from broker.stats.reading import Fields, counters_now, rates
from tests.sampled import SampledQueue

NAMES, LEVELS = KINDS["queue"]


@st.composite
def gauges(draw: st.DrawFn) -> Gauge | None:
    if draw(st.booleans()):
        return None
    gauge = Gauge("queue", 1000)
    row = [0.0] * len(gauge.names)
    for second in range(draw(st.integers(0, 8))):
        for place in range(len(row)):
            row[place] += draw(st.sampled_from([0, 0, 1, 7, 4000]))
        gauge.add(1000 + second * draw(st.sampled_from([1000, 1700])), row)
    return gauge


@given(gauges(), st.lists(st.sampled_from(NAMES), unique=True), st.integers(0, 2**60))
def test_counters_stand_beside_their_rates(
    gauge: Gauge | None, names: list[str], value: int
) -> None:
    counters = {name: value + place for place, name in enumerate(names) if place != 1}
    expected: dict[str, Any] = {}
    for name in names:
        expected[name] = counters.get(name, 0)
        expected[f"{name}_details"] = {"rate": gauge.rate(name) if gauge is not None else 0.0}
    if set(DELIVERING) <= set(names):
        of_all = [expected[f"{name}_details"]["rate"] for name in DELIVERING]
        expected["deliver_get"] = sum(expected[name] for name in DELIVERING)
        found = counters_now(names, counters, gauge)
        assert found.pop("deliver_get_details")["rate"] == round(sum(of_all), 3)
        assert found == expected
    else:
        assert counters_now(names, counters, gauge) == expected


@given(gauges())
def test_levels_have_rates(gauge: Gauge | None) -> None:
    of_each = {name: 0.0 if gauge is None else gauge.rate(name) for name in LEVELS}
    expected = {f"{name}_details": {"rate": rate} for name, rate in of_each.items()}
    assert rates(LEVELS, gauge) == expected


@given(st.lists(gauges(), min_size=1, max_size=4))
def test_queues_are_sorted_by_the_rates_that_their_rows_show(several: list[Gauge | None]) -> None:
    """Otherwise rows that all show 0.0 stand in an order that nobody can explain."""
    queues = []
    for number, gauge in enumerate(several):
        queue = SampledQueue(f"q{number}")
        queue.gauge = gauge
        queues.append(queue)
    rows = [counters_now(NAMES, {}, gauge) for gauge in several]
    for name in (*NAMES, "deliver_get"):
        found = array("d", bytes(8 * len(queues)))
        figures(queues, f"message_stats.{name}_details.rate", 0, len(queues), found)
        assert list(found) == [row[f"{name}_details"]["rate"] for row in rows]


def test_a_row_is_read_by_its_table_in_its_order() -> None:
    fields = Fields({"b": len, "a": min, "c": lambda thing: None})
    row = fields.row([3, 1, 2])
    assert list(row.items()) == [("b", 3), ("a", 1), ("c", None)]
    fields.add_to(row, [5])
    assert row == {"b": 1, "a": 5, "c": None}


def test_idle_queues_are_told_apart_to_the_millisecond() -> None:
    """Times of today need more digits than a float of 32 bits has."""
    now = 1_790_000_000_000
    queues = []
    for later in (2, 0, 1):
        queue = SampledQueue(f"q{later}")
        queue.used_at = now - 1000
        queue.gauge = Gauge("queue", now + later)
        queue.gauge.add(now + later, [1.0] * len(queue.gauge.names))
        queues.append(queue)
    found = array("d", [0.0] * 3)
    figures(queues, "idle_since", 0, 3, found)
    assert list(found) == [now + 2, now, now + 1]
