"""Consistent hashing against a ring that is searched point by point, and against what jump is
known to give."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.binding import Binding
from broker.routing.consistent_hash import ConsistentHashExchange
from broker.routing.hashing import Jump, Ring, hash_of, jump
from broker.schema.errors import PreconditionFailed
from broker.settings.bounds import DEFAULTS

QUEUES = st.sampled_from(["a", "b", "c", "d"])
WEIGHTS = st.integers(1, 4)
CHANGES = st.lists(st.tuples(QUEUES, WEIGHTS), max_size=12)
KEYS = [f"key {number}" for number in range(200)]


def bound(queue: str, weight: int) -> Binding:
    return Binding("x", queue, "queue", str(weight), {})


def made(rows: list[tuple[str, int]], algorithm: str = "ring") -> ConsistentHashExchange:
    exchange = ConsistentHashExchange("x", arguments={"x-algorithm": algorithm})
    for queue, weight in rows:
        exchange.bind(bound(queue, weight))
    return exchange


def homes(exchange: ConsistentHashExchange) -> dict[str, str]:
    return {key: binding.destination for key in KEYS for binding in exchange.match(key, {})}


@given(CHANGES, CHANGES)
def test_a_ring_depends_on_what_is_bound_only(
    rows: list[tuple[str, int]], more: list[tuple[str, int]]
) -> None:
    """Whatever came and went, and in whatever order: as in a ring that was made anew."""
    exchange = made([*more, *rows])
    for queue, weight in set(more) - set(rows):
        exchange.unbind(bound(queue, weight))
    assert homes(exchange) == homes(made(sorted(set(rows), reverse=True)))


def test_a_ring_refuses_more_weight_than_fits_its_memory() -> None:
    exchange = made([("a", 4), ("b", 6)])
    exchange.bounds = dataclasses.replace(DEFAULTS, hash_ring_weights=10)
    with pytest.raises(PreconditionFailed, match=r"must not be greater than .* together"):
        exchange.check(bound("c", 1))
    exchange.check(bound("b", 6))  # it is there
    exchange.unbind(bound("a", 4))
    exchange.check(bound("c", 4))
    with pytest.raises(PreconditionFailed):
        exchange.check(bound("c", 5))
    made([("a", 4), ("b", 6)], "jump").check(bound("c", 10**9))


@given(st.lists(st.tuples(QUEUES, WEIGHTS), min_size=1, max_size=6), st.integers(0, 2**64 - 1))
def test_a_ring_finds_the_next_point(rows: list[tuple[str, int]], hashed: int) -> None:
    ring = Ring()
    for queue, weight in rows:
        ring.add(bound(queue, weight), weight)
    points = [((point - hashed) % 2**64, owner[1]) for point, owner in ring._owners.items()]
    total = Counter(queue for queue, weight in rows for _ in range(weight))
    assert Counter(owner for _, owner in points) == {
        queue: 96 * weight for queue, weight in total.items()
    }
    found = ring.find(hashed)
    assert found is not None
    assert found.destination == min(points)[1]


@given(st.sets(QUEUES, min_size=2), st.data())
def test_a_ring_moves_nothing_but_what_it_must(queues: set[str], data: st.DataObject) -> None:
    rows = [(queue, 2) for queue in sorted(queues)]
    gone = data.draw(st.sampled_from(sorted(queues)))
    exchange = made(rows)
    before = homes(exchange)
    exchange.unbind(bound(gone, 2))
    after = homes(exchange)
    assert all(after[key] == home for key, home in before.items() if home != gone)
    exchange.bind(bound(gone, 1))
    lighter = homes(exchange)
    assert all(lighter[key] in (gone, after[key]) for key in KEYS)
    assert {key for key in KEYS if lighter[key] == gone} <= {
        key for key in KEYS if before[key] == gone
    }, "half the weight keeps a part of what the whole had"


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_it_stays_the_same_in_every_process(algorithm: str) -> None:
    exchange = made([("a", 1), ("b", 1), ("c", 2)], algorithm)
    first = "".join(homes(exchange)[key] for key in KEYS[:16])
    assert first == {"ring": RING, "jump": JUMP}[algorithm]


RING = "bcaaacbacabcacca"
JUMP = "ccbbaccccbabbccc"


def test_a_ring_is_even_within_a_fifth() -> None:
    exchange = made([(f"queue {number}", 1) for number in range(10)])
    counts = Counter(
        binding.destination
        for number in range(20_000)
        for binding in exchange.match(f"order.{number}", {})
    )
    assert len(counts) == 10
    assert all(1600 < count < 2400 for count in counts.values())


def test_jump_gives_what_it_is_known_to_give() -> None:
    known = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert [jump(key, 100) for key in range(20)] == known
    assert [jump(key, 100_001) for key in (2, 2201, 2202)] == [80343, 22152, 15018]


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**33))
def test_jump_moves_keys_to_new_buckets_only(key: int, buckets: int) -> None:
    before, after = jump(key, buckets), jump(key, buckets + 1)
    assert before < buckets
    assert after in (before, buckets)


@given(st.lists(WEIGHTS, min_size=1, max_size=6), st.integers(0, 2**64 - 1))
def test_jump_gives_each_binding_as_many_buckets_as_it_weighs(
    weights: list[int], hashed: int
) -> None:
    spread = Jump()
    rows = [bound(f"q{number}", weight) for number, weight in enumerate(weights)]
    for row, weight in zip(rows, weights, strict=True):
        spread.add(row, weight)
    buckets = [row for row, weight in zip(rows, weights, strict=True) for _ in range(weight)]
    assert spread.find(hashed) == buckets[jump(hashed, len(buckets))]
    spread.remove(rows[0], weights[0])
    rest = [row for row in buckets if row != rows[0]]
    assert spread.find(hashed) == (rest[jump(hashed, len(rest))] if rest else None)


def test_a_hash_takes_any_text() -> None:
    texts = ["", "a", "ä", "\udc80", "x" * 1000]
    assert len({hash_of(text) for text in texts}) == len(texts)
