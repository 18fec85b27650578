"""Going through very many things in steps costs no turn of the loop what all of them cost."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from broker.kernel.through import Through
from broker.kernel.wide_dict import WideDict


class Thing:
    """Something that can be missed."""


def test_it_gives_what_was_there_at_the_beginning_one_by_one_or_in_pieces() -> None:
    things = dict.fromkeys(range(10))
    through = Through(things)
    things.clear()
    assert len(through) == 10
    assert next(through) == 0
    assert through.piece(4) == [1, 2, 3, 4]
    assert list(through) == [5, 6, 7, 8, 9]
    assert through.piece(4) == [] and len(through) == 0
    assert list(Through(())) == []


def test_the_collector_has_none_of_them_to_look_at() -> None:
    assert not gc.is_tracked(Through([Thing() for _ in range(1000)]))


def test_it_lets_go_of_each_as_it_is_given_and_of_the_rest_at_its_end() -> None:
    things = [Thing() for _ in range(6)]
    there = [weakref.ref(thing) for thing in things]
    through = Through(things)
    del things
    for left in (5, 4):
        next(through)
        assert sum(thing() is not None for thing in there) == left
    through.piece(2)
    assert sum(thing() is not None for thing in there) == 2
    del through
    assert not any(thing() for thing in there)


def test_it_refers_to_each_thing_once_until_it_is_given() -> None:
    things = [Thing() for _ in range(1000)]
    before = [sys.getrefcount(thing) for thing in things]
    for count in (0, 10, 1000):
        through = Through(things)
        assert [sys.getrefcount(thing) for thing in things] == [each + 1 for each in before]
        assert len(through.piece(count)) == count
        assert through.piece(0) == []
        del through
        assert [sys.getrefcount(thing) for thing in things] == before


@pytest.mark.parametrize("count", [0, 1, 2048, 2049, 30_000])
def test_values_of_a_wide_dict_are_given_once_each_though_it_is_split_meanwhile(count: int) -> None:
    wide: WideDict[int, int] = WideDict()
    for number in range(count):
        wide[number] = number
    through, found = Through(wide.values()), []
    for step in range(count):
        assert through
        found += through.piece(1)
        wide[count + 2 * step] = wide[count + 2 * step + 1] = -1
    found += through
    assert not through and through.piece(1) == []
    assert sorted(number for number in found if number >= 0) == list(range(count))


def test_values_of_a_wide_dict_that_go_before_their_turn_are_not_given() -> None:
    wide: WideDict[int, Thing] = WideDict()
    for number in range(20_000):
        wide[number] = Thing()
    there = [weakref.ref(thing) for thing in wide.values()]
    through = Through(wide.values())
    through.piece(10)
    wide.clear()
    assert sum(thing() is not None for thing in there) < 2048
    assert len(list(through)) < 2048
    assert not any(thing() for thing in there)


def test_a_walk_over_a_wide_dict_refers_to_few_of_its_values_at_a_time() -> None:
    """To count 250,000 references is a turn of 15 ms."""
    wide: WideDict[int, Thing] = WideDict()
    for number in range(20_000):
        wide[number] = Thing()
    things = list(wide.values())
    before = sum(map(sys.getrefcount, things))
    through = Through(wide.values())
    assert 0 < sum(map(sys.getrefcount, things)) - before <= 2048
    assert len(list(through)) == 20_000
