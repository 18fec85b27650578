"""The queues of a message: each once, in order, and letting go of 100,000 takes no long turn."""

from __future__ import annotations

import gc
import random
import sys
import weakref

from broker.kernel.reached import Reached
from broker.kernel.steps import complete


class Thing:
    """Something that can be missed."""


def test_it_holds_each_once_in_the_order_in_which_they_came() -> None:
    for count in (0, 1, 7, 8, 9, 33, 1000, 20_000):
        things = [Thing() for _ in range(count)]
        asked = [*things, *random.Random(count).choices(things, k=count)] if things else []
        reached = Reached()
        assert sum(reached.add(each) for each in asked) == count
        assert len(reached) == count
        assert all(one is other for one, other in zip(reached, things, strict=True))


def test_equal_things_are_different_ones() -> None:
    one, other = [1], [1]
    reached = Reached()
    assert reached.add(one) and reached.add(other) and not reached.add(one)
    assert list(reached) == [[1], [1]]


def test_few_are_a_tuple_and_the_collector_has_none_of_many_to_look_at() -> None:
    few, many = Reached(), Reached()
    for _ in range(500):
        few.add(Thing())
    for _ in range(50_000):
        many.add(Thing())
    assert few.found() == tuple(few)
    assert many.found() is many and not gc.is_tracked(many)


def test_who_needs_them_at_once_gets_a_tuple_however_many_there_are() -> None:
    reached = Reached()
    for _ in range(20_000):
        reached.add(Thing())

    def steps():  # type: ignore[no-untyped-def]
        yield
        return reached.found()

    assert complete(steps()) == tuple(reached)


def test_it_refers_to_each_once_until_its_end() -> None:
    things = [Thing() for _ in range(100)]
    there = weakref.ref(things[0])
    before = [sys.getrefcount(thing) for thing in things]
    reached = Reached()
    for thing in (*things, *things):
        reached.add(thing)
    del thing
    assert [sys.getrefcount(thing) for thing in things] == [each + 1 for each in before]
    things.clear()
    assert there() is not None
    del reached
    assert there() is None


def test_it_lets_go_of_some_at_a_time() -> None:
    things = [Thing() for _ in range(100)]
    there = [weakref.ref(thing) for thing in things]
    reached = Reached()
    for thing in things:
        reached.add(thing)
    assert things[7] in reached and Thing() not in reached
    del thing
    things.clear()
    for left in (70, 40, 10):
        assert reached.let_some_go(30)
        assert sum(each() is not None for each in there) == left
    assert not reached.let_some_go(30)
    assert not any(each() for each in there)
