"""A wide dict maps as a dict does, however many entries it has, and none of its parts is large."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc

import pytest

from broker.kernel.wide_dict import WideDict
from broker.routing.topic_tree import TopicTree
from tests.oracles.chosen_hashes import mixed_to

LARGEST_PART = 2048


class Same:
    """All have one hash."""

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize("keys", [50, 60_000])
def test_it_maps_as_a_dict_does(keys: int) -> None:
    chance = random.Random(keys)
    wide: WideDict[str, int] = WideDict()
    plain: dict[str, int] = {}
    for number in range(4 * keys):
        key = f"k{chance.randrange(keys)}"
        match chance.randrange(5):
            case 0:
                assert wide.pop(key, None) == plain.pop(key, None)
            case 1 if key in plain:
                del wide[key]
                del plain[key]
            case _:
                wide[key] = plain[key] = number
        assert len(wide) == len(plain)
        assert (key in wide, wide.get(key)) == (key in plain, plain.get(key))
    assert dict(wide.items()) == plain
    assert sorted(wide) == sorted(plain)
    assert sorted(wide.values()) == sorted(plain.values())
    while plain:
        key, value = wide.popitem()
        assert plain.pop(key) == value
    assert len(wide) == 0
    with pytest.raises(KeyError):
        wide.popitem()
    with pytest.raises(KeyError):
        wide["none"]
    wide["one"] = 1
    assert list(wide.items()) == [("one", 1)]


def test_few_entries_are_in_order_of_insertion() -> None:
    wide: WideDict[int, int] = WideDict({5: 0})
    for number in (3, 9, 1):
        wide[number] = number
    assert list(wide) == [5, 3, 9, 1]


def test_no_part_is_large() -> None:
    wide: WideDict[int, None] = WideDict()
    for number in range(200_000):
        wide[number << 20] = None
    assert max(map(len, wide.each_part())) <= LARGEST_PART
    assert sum(map(len, wide.each_part())) == len(wide) == 200_000


def test_keys_of_one_hash_stay_in_one_part() -> None:
    wide: WideDict[Same, None] = WideDict({Same(): None for _ in range(3)})
    many = [Same() for _ in range(20)]
    for key in many:
        wide[key] = None
    assert all(key in wide for key in many)


def test_keys_that_a_client_chose_to_collide_take_no_memory_beside_their_own() -> None:
    """A client may bind by any number, and the hash of a number is no secret."""
    numbers = (mixed_to(high << 32) for high in range(1, 100_000))
    keys = [one for one in numbers if one < sys.hash_info.modulus][:5000]
    wide: WideDict[int, None] = WideDict()
    tracemalloc.start()
    for key in keys:
        wide[key] = None
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert all(key in wide for key in keys)
    assert taken < 2_000_000
    # And they do not all lie in one, which would have to grow as a whole.
    assert max(len(part) for part in wide.each_part()) <= LARGEST_PART


def test_what_is_taken_away_gives_its_memory_back() -> None:
    wide: WideDict[int, None] = WideDict()
    keys = [number << 20 for number in range(100_000)]
    for key in keys:
        wide[key] = None
    for key in keys[:-1]:
        del wide[key]
    assert sum(map(sys.getsizeof, wide.each_part())) < 200_000  # the part of the last one


def test_patterns_are_found_and_removed_while_their_table_grows() -> None:
    """Entries move some at a time: those that have moved, those that have not, and those that came
    or went meanwhile."""
    tree = TopicTree()
    chance = random.Random(7)
    there: dict[int, list[str]] = {}
    for number in range(70_000):
        there[number] = [f"a{number % 7}", f"b{number}"]
        tree.add(there[number], number)
        if number % 3 == 0:
            gone = chance.choice((number, chance.randrange(number + 1)))
            if gone in there:
                tree.remove(there.pop(gone), gone)
                assert tree.match([f"a{gone % 7}", f"b{gone}"]) == []
        asked = chance.randrange(number + 1)
        found = [asked] if asked in there else []
        assert tree.match([f"a{asked % 7}", f"b{asked}"]) == found
    for number, pattern in there.items():
        tree.remove(pattern, number)
    assert tree.is_empty


def test_the_collector_walks_over_no_part_of_a_large_one() -> None:
    """It counts objects, and a part is one with a thousand entries."""
    wide: WideDict[int, Same] = WideDict()
    for number in range(20_000):
        wide[number] = Same()
        wide.get(number)
    parts = wide.each_part()
    assert len(parts) > 8
    assert not [part for part in parts if gc.is_tracked(part)]
