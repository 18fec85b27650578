"""Topic and headers exchanges against their slow twins."""

import itertools
import os
import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.binding import Binding
from broker.routing.header_index import HeaderIndex
from broker.routing.headers import HeadersExchange
from broker.routing.topic import TopicExchange, pattern_of
from broker.routing.topic_tree import TopicTree
from broker.schema.errors import PreconditionFailed
from tests.oracles import headers as headers_oracle
from tests.oracles import topic as topic_oracle
from tests.oracles.chosen_hashes import mixed

# `make many-bindings` takes a hundred thousand.
BINDINGS = int(os.environ.get("LEVERET_TEST_BINDINGS", "20000"))

patterns = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), max_size=6).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "c", "", "*", "#"]), max_size=7).map(".".join)


def bound(queue: str, key: str = "", arguments: dict[str, Any] | None = None) -> Binding:
    return Binding("x", queue, "queue", key, arguments or {})


@given(st.lists(patterns, max_size=12), keys)
def test_a_topic_exchange_finds_what_the_oracle_finds(bindings: list[str], key: str) -> None:
    exchange = TopicExchange("x")
    for index, pattern in enumerate(bindings):
        exchange.add(bound(str(index), pattern))
    found = sorted(int(binding.destination) for binding in exchange.match(key, {}))
    expected = [
        index for index, pattern in enumerate(bindings) if topic_oracle.matches(pattern, key)
    ]
    assert found == expected


@given(st.lists(patterns, min_size=1, max_size=12), st.data())
def test_a_topic_exchange_forgets_what_is_unbound(bindings: list[str], data: st.DataObject) -> None:
    exchange = TopicExchange("x")
    rows = [bound(str(index), pattern) for index, pattern in enumerate(bindings)]
    for row in rows:
        exchange.add(row)
    gone = data.draw(st.sets(st.sampled_from(range(len(rows)))))
    for index in gone:
        exchange.remove(rows[index])
    key = data.draw(keys)
    found = sorted(int(binding.destination) for binding in exchange.match(key, {}))
    assert found == [
        index
        for index, pattern in enumerate(bindings)
        if index not in gone and topic_oracle.matches(pattern, key)
    ]
    for index in set(range(len(rows))) - gone:
        exchange.remove(rows[index])
    assert exchange.tree.is_empty


def test_a_topic_exchange_gives_memory_back_with_its_last_pattern() -> None:
    exchange = TopicExchange("x")
    rows = [bound(str(index), f"k.{index}") for index in range(5000)]
    for row in rows:
        exchange.add(row)
    for row in rows[1:]:
        exchange.remove(row)
    assert exchange.tree.capacity > 5000
    assert list(exchange.match("k.0", {})) == [rows[0]]
    exchange.remove(rows[0])
    assert exchange.tree.capacity < 100
    assert list(exchange.match("k.0", {})) == []
    exchange.add(rows[7])
    assert list(exchange.match("k.7", {})) == [rows[7]]


@given(
    st.lists(st.tuples(patterns, st.booleans()), max_size=30),
    st.lists(patterns, max_size=3),
)
def test_what_a_key_can_cost_depends_on_the_patterns_that_are_there_only(
    changes: list[tuple[str, bool]], asked: list[str]
) -> None:
    tree, there = TopicTree(), []
    for number, (pattern, removes) in enumerate(changes):
        if removes and there:
            tree.remove(*there.pop(number % len(there)))
        else:
            there.append((pattern_of(pattern), number))
            tree.add(*there[-1])
        for other in asked:
            tree.cost_with(pattern_of(other))
    fresh = TopicTree()
    for pattern_words, number in there:
        fresh.add(pattern_words, number)
    assert tree.cost == fresh.cost
    assert tree.is_empty == (not there)


def test_wildcards_that_multiply_each_other_are_refused_at_the_binding() -> None:
    exchange = TopicExchange("x")
    bound_number = 0
    with pytest.raises(PreconditionFailed, match="topic_visits_max"):
        for chosen in itertools.product("a*", repeat=17):
            row = bound("q", ".".join(("#", *chosen)))
            exchange.check(row)
            exchange.bind(row)
            bound_number += 1
    # What is bound serves on, and a pattern without wildcards is still taken.
    assert len(list(exchange.match(".".join("a" * 121), {}))) == bound_number
    exchange.check(bound("q", "a.b.c"))


@pytest.mark.parametrize("pattern", ["app.{}.*.eu", "#.word{}", "#.word{}.#", "a.*.{}.#", "w{}.#"])
def test_many_ordinary_patterns_fit_one_exchange(pattern: str) -> None:
    exchange = TopicExchange("x")
    for number in range(BINDINGS):
        row = bound("q", pattern.format(number))
        exchange.check(row)
        exchange.add(row)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from(["", "x", "1"]),
    st.just(1.0),
    st.sampled_from([[], [1], [True], {"a": 1}]),
)
names = st.sampled_from(["a", "b", "c", "x-d", "x-e"])
matching = st.dictionaries(names, values, max_size=4)


@given(
    st.lists(
        st.tuples(matching, st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"])),
        max_size=8,
    ),
    matching,
)
def test_a_headers_exchange_finds_what_the_oracle_finds(
    bindings: list[tuple[dict[str, Any], str | None]], headers: dict[str, Any]
) -> None:
    exchange = HeadersExchange("x")
    tables = [table | ({"x-match": how} if how else {}) for table, how in bindings]
    for index, table in enumerate(tables):
        row = bound(str(index), "", table)
        exchange.check(row)
        exchange.bindings["queue", str(index), "", ""] = row
        exchange.add(row)
    found = sorted(int(binding.destination) for binding in exchange.match("", headers))
    assert found == [
        index for index, table in enumerate(tables) if headers_oracle.matches(table, headers)
    ]


@given(
    st.lists(
        st.tuples(matching, st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"])),
        max_size=12,
    ),
    st.data(),
    matching,
)
def test_a_headers_exchange_forgets_what_is_unbound(
    tables: list[tuple[dict[str, Any], str | None]], data: st.DataObject, headers: dict[str, Any]
) -> None:
    exchange = HeadersExchange("x")
    rows = [
        bound(str(index), "", table | ({"x-match": how} if how else {}))
        for index, (table, how) in enumerate(tables)
    ]
    for row in rows:
        exchange.bind(row)
    kept = [row for row in rows if not data.draw(st.booleans())]
    for row in rows:
        if row not in kept:
            exchange.unbind(row)
    found = {binding.destination for binding in exchange.match("", headers)}
    assert found == {
        row.destination for row in kept if headers_oracle.matches(row.arguments, headers)
    }
    for row in kept:
        exchange.unbind(row)
    assert exchange.index.cost == 0
    assert list(exchange.match("", headers)) == []


def test_headers_that_many_bindings_share_are_refused_at_the_binding() -> None:
    exchange = HeadersExchange("x")
    names = [f"h{number}" for number in range(20)]
    rows = [
        bound("q", "", dict.fromkeys(chosen, 1) | {"never": [number]})
        for number, chosen in enumerate(itertools.combinations(names, 10))
    ]
    with pytest.raises(PreconditionFailed, match="headers_comparisons_max"):
        for row in rows:
            exchange.check(row)
            exchange.bind(row)
    assert list(exchange.match("", dict.fromkeys(names, 1) | {"never": 0})) == []
    # What adds nothing is still taken, and room comes back.
    exchange.check(bound("q", "", {"h1": 1}))
    exchange.check(bound("other", "", rows[0].arguments))
    exchange.unbind(rows[0])
    exchange.check(rows[0])


@pytest.mark.parametrize(
    "wanted",
    [
        lambda number: {"kind": "order", "region": "eu", "id": number},
        lambda number: {"kind": f"k{number % 10}", "region": f"r{number % 9}"},
        lambda number: {"kind": "order", "region": "eu"},
        lambda number: {"kind": f"k{number % 10}", "at": number, "x-match": "any"},
    ],
)
def test_many_ordinary_headers_bindings_fit_one_exchange(wanted: Any) -> None:
    exchange = HeadersExchange("x")
    for number in range(BINDINGS):
        row = bound(str(number), "", wanted(number))
        exchange.check(row)
        exchange.bind(row)


def test_a_tree_that_is_empty_again_holds_no_objects_of_the_patterns_it_had() -> None:
    tree, many = TopicTree(), 20_000
    before = sys.getallocatedblocks()
    for number in range(many):
        tree.add(["k", f"{number:07}"], number)
    assert sys.getallocatedblocks() - before > many
    for number in range(many):
        tree.remove(["k", f"{number:07}"], number)
    assert tree.is_empty
    assert sys.getallocatedblocks() - before < many / 10


def test_the_dearest_of_many_patterns_is_known_whichever_of_them_go() -> None:
    """More than are looked at one by one."""
    tree = TopicTree()
    there = {f"w{number}" + ".*" * (number % 7): number for number in range(300)}
    there["w1.*.*.*.*.*.*.*.*"] = 300
    for pattern, number in there.items():
        tree.add(pattern_of(pattern), number)
    chosen = random.Random(11)
    while there:
        pattern = chosen.choice([*there])
        tree.remove(pattern_of(pattern), there.pop(pattern))
        tree.cost_with(pattern_of("new.*.*.*.*.*.*"))
        fresh = TopicTree()
        for other, number in there.items():
            fresh.add(pattern_of(other), number)
        assert tree.cost == fresh.cost
    assert tree.is_empty


def test_words_that_a_client_chose_to_collide_are_found_without_a_long_search() -> None:
    """Nodes and words have numbers in the order in which they came."""
    many, places, near = 300, 4096, 32
    tree = TopicTree()
    for number in range(many):
        tree.add([f"p{number}"], number)
    for number in range(many):
        tree.add([f"w{number}"], number)
    chosen = [
        (parent, word)
        for parent in range(many)
        for word in range(many)
        if mixed((parent + 1 << 32 | many + word) + 1) % places < near
    ]
    assert len(chosen) > 500
    for parent, word in chosen:
        tree.add([f"p{parent}", f"w{word}"], 0)
    assert tree.longest_way < 150


def test_the_dearest_of_many_values_of_a_header_is_known_whichever_of_them_go() -> None:
    index = HeaderIndex()
    there: list[Binding] = []
    for number in range(400):
        wanted: dict[str, Any] = {"x-match": "all", "a": number}
        # The header where the fewest comparisons are due is the first of them.
        wanted |= {f"b{extra}": number for extra in range(number % 9)}
        there.append(bound(str(number), "", wanted))
        index.add(there[-1])
    chosen = random.Random(11)
    chosen.shuffle(there)
    while there:
        index.remove(there.pop())
        fresh = HeaderIndex()
        for row in there:
            fresh.add(row)
        assert index.cost == fresh.cost
    assert index.cost == 0
