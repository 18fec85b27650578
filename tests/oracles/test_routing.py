"""Topic and headers exchanges against their slow twins."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.routing.exchange import Binding
from broker.routing.headers import HeadersExchange
from broker.routing.topic import TopicExchange
from tests.oracles import headers as headers_oracle
from tests.oracles import topic as topic_oracle

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
    assert exchange._root.is_empty()


values = st.one_of(
    st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["", "x", "1"]), st.just(1.0)
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
