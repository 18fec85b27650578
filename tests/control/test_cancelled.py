"""What is kept of cancelled messages until the index meets them."""

from __future__ import annotations

from broker.features.delayed.cancelled import Cancelled

MOST = 100


def test_it_knows_a_place_until_it_is_taken() -> None:
    found = Cancelled(MOST)
    found.add(1, 8)
    found.add(1, 8)
    found.add(2, 8)
    assert found.count == 2
    assert found.holds(1, 8)
    assert not found.holds(1, 9)
    assert found.take(1, 8)
    assert not found.take(1, 8)
    assert not found.take(3, 8)
    assert found.count == 1


def test_it_forgets_those_of_segments_that_are_gone() -> None:
    found = Cancelled(MOST)
    for segment in range(10):
        for position in range(100):
            found.add(segment, position)
    found.forget_gone(lambda segment: segment == 3)
    assert found.count == 100
    assert found.holds(3, 99)
    assert not found.holds(4, 0)


def test_it_is_full_at_its_limit() -> None:
    found = Cancelled(MOST)
    for position in range(MOST):
        found.add(1, position)
    assert found.is_full
    assert found.take(1, 7)
    assert not found.is_full
