"""Routing under attack: what it costs is counted in steps, and grows with what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.queues.types import MessageQueue
from broker.routing import hashing
from broker.routing.binding import Binding
from broker.routing.consistent_hash import ConsistentHashExchange
from broker.routing.direct import DirectExchange
from broker.routing.exchange import BoundExchange
from broker.routing.fanout import FanoutExchange
from broker.routing.headers import HeadersExchange
from broker.routing.topic import TopicExchange, pattern_of
from broker.vhosts.argument_memory import ArgumentMemory
from broker.vhosts.bindings import Bindings
from broker.vhosts.routes import Routes
from tests.oracles.steps import Counted, grows_with, is_linear, steps

# The longest keys there are: 255 octets.
DOTS = "." * 255
LONGEST = [
    DOTS,
    ".".join("a" * 128),
    ".".join("ab" * 64),
    "a" * 255,
    ".a" * 127,
]
PATTERNS = [
    ".".join("#" * 128),
    ".".join("#*" * 64),
    ".".join("*#" * 64),
    ".".join("*" * 128),
    ".".join("#a" * 64),
    ".".join("a#" * 64),
    ".".join("#a*" * 42),
    "#" + DOTS[:253] + "#",
    "#." * 60 + "b" + ".#" * 60,
]

NO_ARGUMENTS = ArgumentMemory("v", 0)


def bound(key: str, to: str = "q", kind: str = "queue", **arguments: Any) -> Binding:
    return Binding("x", to, kind, key, arguments)


def topic(*patterns: str) -> TopicExchange:
    exchange = TopicExchange("x")
    for number, pattern in enumerate(patterns):
        exchange.bind(bound(pattern, str(number)))
    return exchange


def matching(exchange: BoundExchange, key: str, **headers: Any) -> Callable[[], object]:
    return lambda: list(exchange.match(key, headers))


def visits(exchange: TopicExchange, key: str) -> int:
    """Nodes of the tree of patterns that routing the key visits."""
    before = exchange.tree.visits
    list(exchange.match(key, {}))
    return exchange.tree.visits - before


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("key", LONGEST)
def test_a_topic_takes_at_most_words_times_words_of_a_pattern(pattern: str, key: str) -> None:
    words = (len(key.split(".")) + 1) * (len(pattern.split(".")) + 1)
    assert visits(topic(pattern), key) <= words


@pytest.mark.parametrize("word", ["#", "*", "a", "#.*", "#.a", "a.#", "#.a.*"])
@pytest.mark.parametrize("key", LONGEST)
def test_a_topic_grows_with_the_length_of_a_pattern(word: str, key: str) -> None:
    first, *more = (visits(topic(".".join([word] * 8 * times)), key) for times in (1, 2, 4))
    assert is_linear([each / first for each in more])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("word", ["", "a"])
def test_a_topic_grows_with_the_length_of_a_key(pattern: str, word: str) -> None:
    exchange = topic(pattern)
    # From the pattern's length on no node is reached that was not before.
    one, two, three = (visits(exchange, ".".join([word] * 260 * times)) for times in (1, 2, 3))
    assert three - two <= (two - one) * 1.1


def test_a_topic_grows_with_its_patterns() -> None:
    def made(count: int) -> TopicExchange:
        return topic(*(".".join(["#", "a", "*", f"w{number}"] * 8) for number in range(count)))

    first, *more = (visits(made(8 * times), ".".join("a" * 64)) for times in (1, 2, 4))
    assert is_linear([each / first for each in more])


@pytest.mark.parametrize("key", LONGEST)
@given(patterns=st.lists(st.lists(st.sampled_from(["#", "*", "a", "ab", ""]), max_size=9)))
@settings(max_examples=60)
def test_no_key_costs_more_than_its_exchange_says(key: str, patterns: list[list[str]]) -> None:
    exchange = topic(*map(".".join, patterns))
    found = {each.routing_key for each in exchange.match(key, {})}
    assert exchange.tree.visits + 50 * len(set(map(tuple, map(pattern_of, found)))) <= (
        exchange.tree.cost
    )


def test_a_run_of_wildcards_is_one() -> None:
    long, short = topic("#.#.*.#.*.#"), topic("*.*.#")
    for key in ("", "a", "a.b", "a.b.c", "..", DOTS):
        found = [each.routing_key for each in long.match(key, {})]
        assert len(found) == len(list(short.match(key, {})))
    # Both are bound, and unbound, apart.
    both = topic("#.*", "*.#")
    assert len(list(both.match("a", {}))) == 2
    assert both.unbind(bound("#.*", "0"))
    assert [each.routing_key for each in both.match("a", {})] == ["*.#"]
    assert both.unbind(bound("*.#", "1"))
    assert both.tree.is_empty


@pytest.mark.parametrize("match", ["all", "any", "all-with-x", "any-with-x"])
@pytest.mark.parametrize("hits", [True, False])
def test_headers_grow_with_bindings_and_with_their_arguments(match: str, hits: bool) -> None:
    headers = {f"h{number}": 1 for number in range(400)}

    def bindings(count: int) -> Callable[[], object]:
        exchange = HeadersExchange("x")
        for number in range(count):
            wanted = {f"h{each}": 1 if hits else 2 for each in range(10)}
            exchange.bind(bound("", str(number), **wanted, **{"x-match": match}))
        return matching(exchange, "", **headers)

    def arguments(count: int) -> Callable[[], object]:
        exchange = HeadersExchange("x")
        wanted = {f"h{each}": 1 if hits else 2 for each in range(count)}
        exchange.bind(bound("", **wanted, **{"x-match": match}))
        return matching(exchange, "", **headers)

    assert is_linear(grows_with(bindings, 10))
    assert is_linear(grows_with(arguments, 50))


def test_headers_do_not_grow_with_those_of_the_message() -> None:
    exchange = HeadersExchange("x")
    exchange.bind(bound("", a=1, b=2))

    def made(count: int) -> Callable[[], object]:
        return matching(exchange, "", **{f"h{number}": 1 for number in range(count)})

    assert max(grows_with(made, 100)) == 1.0


def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the points of rings count how often they are compared."""
    points = hashing._points
    monkeypatch.setattr(hashing, "_points", lambda *given: list(map(Counted, points(*given))))


def test_binding_to_a_ring_costs_the_same_beside_many(monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch)

    def cost(others: int) -> int:
        exchange = ConsistentHashExchange("x")
        for number in range(others):
            exchange.bind(bound("1", str(number)))
        Counted.comparisons = 0
        exchange.bind(bound("1", "last"))
        exchange.unbind(bound("1", "last"))
        return Counted.comparisons

    # A binary search has one step more for twice the points.
    few, many = cost(40), cost(160)
    assert many <= few * 1.3


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_finding_costs_hardly_more_with_the_heaviest_weights(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    counted(monkeypatch)

    def cost(weight: int) -> int:
        exchange = ConsistentHashExchange("x", arguments={"x-algorithm": algorithm})
        for number in range(4):
            exchange.bind(bound(str(weight), str(number)))
        list(exchange.match("first", {}))
        Counted.comparisons = 0
        taken = [steps(matching(exchange, f"key {number}")) for number in range(20)]
        return sum(taken) + Counted.comparisons

    heaviest = hashing.RING_WEIGHT_MAX if algorithm == "ring" else hashing.JUMP_WEIGHT_MAX
    # Jump takes about ln(sum of weights) leaps, a ring a binary search.
    assert cost(heaviest) <= 10 * cost(1)


@pytest.mark.parametrize("algorithm", ["ring", "jump"])
def test_unbinding_all_grows_with_the_bindings(algorithm: str) -> None:
    def made(count: int) -> Callable[[], object]:
        exchange = ConsistentHashExchange("x", arguments={"x-algorithm": algorithm})
        rows = [bound("1", "one queue", number=number) for number in range(count)]
        for row in rows:
            exchange.bind(row)
        return lambda: [exchange.unbind(row) for row in rows]

    assert is_linear(grows_with(made, 20))


def left_and_bound_again(bindings: Bindings, *keys: str) -> list[Binding]:
    """The bindings of a queue that is deleted after it was bound."""
    rows = [bound(key) for key in keys]
    for row in rows:
        bindings.add(row)
    assert not list(bindings.leave("queue", "q"))
    return rows


def test_what_leaves_again_is_not_put_together_with_what_leaves_already() -> None:
    def made(count: int) -> Callable[[], object]:
        exchanges: dict[str, BoundExchange] = {"x": DirectExchange("x")}
        bindings = Bindings(exchanges, {}, ArgumentMemory("v", 0))
        left_and_bound_again(bindings, *(f"a{number}" for number in range(2 * count)))
        for number in range(count):
            bindings.add(bound(f"b{number}"))
        return lambda: list(bindings.leave("queue", "q"))

    assert grows_with(made, 100) == [1, 1]


def test_what_leaves_twice_is_removed_and_what_is_bound_meanwhile_stays() -> None:
    exchange = DirectExchange("x")
    bindings = Bindings({"x": exchange}, {}, ArgumentMemory("v", 0))
    first = left_and_bound_again(bindings, "a", "b")
    second = left_and_bound_again(bindings, "b", "c")
    stays = bound("c")
    bindings.add(stays)
    assert all(bindings.is_leaving(row) for row in (first[0], second[0]))
    assert not bindings.is_leaving(stays)
    assert [each for each in exchange.bindings.values() if not bindings.is_leaving(each)] == [stays]
    assert bindings.count == 3
    for _ in bindings.drop_to("queue", "q"):
        pass
    assert list(exchange.bindings.values()) == [stays]
    assert bindings.count == 1
    assert not bindings.leaving
    assert bindings.has(stays)


class Named:
    """An end of bindings that counts how often it is compared with another."""

    comparisons = 0


@pytest.mark.parametrize("kind", [DirectExchange, TopicExchange, FanoutExchange, HeadersExchange])
def test_unbinding_compares_with_no_other_binding(kind: type[BoundExchange]) -> None:
    class Key(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            Named.comparisons += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    exchange = kind("x")
    rows = [Binding("x", Key(f"q{number}"), "queue", "k", {}) for number in range(400)]
    for row in rows:
        exchange.bind(row)
    Named.comparisons = 0
    for row in reversed(rows):
        exchange.unbind(row)
    assert Named.comparisons < 4 * len(rows)


def chain(length: int, *, circle: bool) -> Routes:
    """Exchanges that lead to one another, the last one to a queue."""
    exchanges: dict[str, BoundExchange] = {}
    queues: dict[str, MessageQueue] = {"q": object()}  # type: ignore[dict-item]
    for number in range(length):
        exchanges[f"x{number}"] = exchange = FanoutExchange(f"x{number}")
        if number + 1 < length or circle:
            exchange.bind(bound("", f"x{(number + 1) % length}", "exchange"))
    exchanges[f"x{length - 1}"].bind(bound("", "q"))
    return Routes(exchanges, queues, Bindings(exchanges, queues, NO_ARGUMENTS))


@pytest.mark.parametrize("circle", [False, True])
def test_a_chain_of_exchanges_may_be_of_any_length(circle: bool) -> None:
    routes = chain(5_000, circle=circle)
    assert routes.is_by_key(routes.exchanges["x0"])
    assert routes.route(routes.exchanges["x0"], [""], {}) == (routes.queues["q"],)


def test_alternates_may_form_a_chain_of_any_length() -> None:
    exchanges: dict[str, BoundExchange] = {}
    for number in range(5_000):
        arguments = {"alternate-exchange": f"x{number + 1}"}
        exchanges[f"x{number}"] = DirectExchange(f"x{number}", arguments=arguments)
    exchanges["x5000"] = FanoutExchange("x5000")
    exchanges["x5000"].bind(bound("", "q"))
    bindings = Bindings(exchanges, {}, NO_ARGUMENTS)
    routes = Routes(exchanges, {"q": object()}, bindings)  # type: ignore[dict-item]
    assert len(routes.route(exchanges["x0"], ["k"], {})) == 1


@pytest.mark.parametrize("circle", [False, True])
def test_a_route_grows_with_the_exchanges_on_it(circle: bool) -> None:
    def made(length: int) -> Callable[[], object]:
        routes = chain(length, circle=circle)
        return lambda: routes.route(routes.exchanges["x0"], [""], {})

    assert is_linear(grows_with(made, 50))


def test_exchanges_bound_to_all_others_are_visited_once() -> None:
    def made(count: int) -> Callable[[], object]:
        exchanges: dict[str, BoundExchange] = {
            f"x{number}": FanoutExchange(f"x{number}") for number in range(count)
        }
        for exchange in exchanges.values():
            for other in exchanges:
                exchange.bind(bound("", other, "exchange"))
        routes = Routes(exchanges, {}, Bindings(exchanges, {}, NO_ARGUMENTS))
        return lambda: routes.route(exchanges["x0"], [""], {})

    # The bindings are the square of the exchanges; each is looked at once.
    two, four = grows_with(made, 20)
    assert two <= 4 * 1.1
    assert four <= 16 * 1.1


def test_whether_the_key_decides_does_not_grow_with_the_queues() -> None:
    def made(count: int) -> Callable[[], object]:
        exchange = TopicExchange("x")
        for number in range(count):
            exchange.bind(bound("#", str(number)))
        routes = Routes({"x": exchange}, {}, Bindings({"x": exchange}, {}, NO_ARGUMENTS))
        return lambda: routes.is_by_key(exchange)

    assert max(grows_with(made, 100)) == 1.0


def test_the_dearest_pattern_comes_and_goes_in_the_same_time_beside_many() -> None:
    exchange = topic(*(f"w{number}.#" for number in range(5000)))
    before = exchange.tree.compared
    for number in range(10):
        dear = bound(f"dear{number}.*.*.*.#")
        exchange.check(dear)
        exchange.bind(dear)
        exchange.unbind(dear)
    assert exchange.tree.compared - before < 1000


def test_the_dearest_headers_come_and_go_in_the_same_time_beside_many() -> None:
    def dearest_comes_and_goes(count: int) -> Callable[[], object]:
        exchange = HeadersExchange("x")
        for number in range(count):
            exchange.bind(bound("", **{"x-match": "all", "a": number, "b": number}))
        dear = bound("", a=-1, b=-1, c=-1, d=-1)

        def come_and_go() -> None:
            exchange.check(dear)
            exchange.bind(dear)
            exchange.unbind(dear)
            exchange.check(dear)

        return come_and_go

    assert max(grows_with(dearest_comes_and_goes, 500)) < 1.1
