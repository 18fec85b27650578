"""A binding is its own key: AMQP tells two apart by their ends, their key and their arguments."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.binding import Binding

names = st.sampled_from(["", "a", "b", "\udcff"])
tables = st.dictionaries(
    st.sampled_from(["x-match", "a"]), st.sampled_from([None, 1, True, 1.0, "1", [1], {"b": 1}])
)
parts = st.tuples(names, names, st.sampled_from(["queue", "exchange"]), names, tables)


def text(one: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same with the arguments as text, in an order of their own: 1, 1.0 and true differ."""
    return (*one[:4], sorted(map(repr, one[4].items())))


@given(parts, parts)
def test_two_are_equal_that_have_the_same_ends_key_and_arguments(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    a, b = Binding(*one), Binding(*other)
    assert (a == b) == (text(one) == text(other))
    if a == b:
        assert hash(a) == hash(b)
    assert {a: 1}.get(b) == (1 if text(one) == text(other) else None)


@given(parts)
def test_what_it_was_made_of_makes_an_equal_one(one: tuple[Any, ...]) -> None:
    binding = Binding(*one)
    assert Binding(**binding.facts()) == binding
    assert tuple(binding.facts().values()) == one


def test_the_order_of_arguments_does_not_matter() -> None:
    ends = ("x", "q", "queue", "k")
    assert Binding(*ends, {"a": 1, "b": 2}) == Binding(*ends, {"b": 2, "a": 1})
    assert Binding(*ends, {"a": 1}) != ("x", "q", "queue", "k", {"a": 1})


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Binding("x", "q", "queue", "k", {}).routing_key = "other"  # type: ignore[misc]
