"""The ring of a history beside a list of its steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.stats.ring import Ring

STEP = 10
Rows = list[tuple[int, tuple[float, float]]]


@st.composite
def additions(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Times of single rows `(at, at)` and of stretches `(begin, end)`, none before another's."""
    found, at = [], draw(st.integers(0, 100))
    for _ in range(draw(st.integers(0, 30))):
        if draw(st.integers(0, 4)):
            at += draw(st.sampled_from([0, 1, 5, STEP, 3 * STEP, 50 * STEP]))
            found.append((at, at))
        else:
            begin = (at // STEP + 1) * STEP + draw(st.integers(0, STEP - 1))
            at = begin + draw(st.integers(0, 40 * STEP))
            found.append((begin, at))
    return found


@given(additions(), st.integers(1, 20))
def test_it_holds_the_last_row_of_each_of_the_newest_steps(
    added: list[tuple[int, int]], size: int
) -> None:
    ring = Ring(2, STEP, size)
    kept: Rows = []
    for number, (begin, end) in enumerate(added):
        row = (float(number), -float(number))
        if begin == end:
            ring.add(end, row)
            if kept and kept[-1][0] // STEP == end // STEP:
                kept.pop()
            kept.append((end, row))
        else:
            ring.stand(begin, end, row)
            steps = end // STEP - begin // STEP
            kept += [(begin + step * STEP, row) for step in range(steps)]
        kept = kept[-size:]
        assert list(ring.times_in_order()) == [at for at, _ in kept]
        assert [*zip(ring.column(0), ring.column(1), strict=True)] == [row for _, row in kept]
        assert ring.first == (kept[0][0] if kept else 0)
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
