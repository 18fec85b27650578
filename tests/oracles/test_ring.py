"""The ring of a history beside a list of its steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.stats.ring import Ring

STEP = 10
Rows = list[tuple[int, tuple[float, float]]]


@given(
    st.lists(st.sampled_from([0, 1, 5, STEP, 3 * STEP, 50 * STEP]), max_size=60),
    st.integers(1, 20),
)
def test_it_holds_the_last_row_of_each_of_the_newest_steps(passed: list[int], size: int) -> None:
    ring, at = Ring(2, STEP, size), 95
    kept: Rows = []
    for number, ms in enumerate(passed):
        at += ms
        row = (float(number), -float(number))
        ring.add(at, row)
        if kept and kept[-1][0] // STEP == at // STEP:
            kept.pop()
        kept = [*kept, (at, row)][-size:]
        assert list(ring.times_in_order()) == [at for at, _ in kept]
        assert [*zip(ring.column(0), ring.column(1), strict=True)] == [row for _, row in kept]
        assert ring.first == kept[0][0]
        assert len(ring) == len(kept)


def test_it_refuses_rows_and_columns_that_it_does_not_have() -> None:
    ring = Ring(2, STEP, 3)
    with pytest.raises(ValueError, match="a row of 1 values where 2 are kept"):
        ring.add(0, [1.0])
    with pytest.raises(TypeError):
        ring.add(0, [1.0, "x"])  # type: ignore[list-item]
    with pytest.raises(IndexError):
        ring.column(2)
    assert len(ring) == 0
