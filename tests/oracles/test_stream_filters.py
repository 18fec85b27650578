"""Filters of stream consumers against their slow twin, which compares all with all."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.fields.codec import encode_table
from broker.queues.stream_filter import ALL, ANY, BY_DEFAULT, StreamFilter
from tests.inner import takes as accepts

texts = st.sampled_from(["", "a", "b", "ab", "abc", "1", "true"])
names = st.sampled_from(["n", "nn", "m", ""])
field_values = st.one_of(texts, st.booleans(), st.integers(-1, 2), st.none(), st.just(2**40))
filter_values = st.one_of(st.lists(texts, max_size=5).map(",".join), st.just(7))
messages = st.tuples(st.none() | filter_values, st.dictionaries(names, field_values, max_size=4))


def as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int)) else None


def takes(
    values: list[str],
    headers: list[tuple[str, str]],
    unfiltered: bool,
    match: int,
    value: Any,
    has: dict[str, Any],
) -> bool:
    """Whether a message with this filter value and these other headers is wanted."""
    if not isinstance(value, str) and unfiltered:
        return True
    parts = value.split(",") if isinstance(value, str) else []
    of_values = [wanted in parts for wanted in values]
    of_headers = [name in has and as_text(has[name]) == wanted for name, wanted in headers]
    if match == ANY:
        return any(of_values + of_headers)
    if values and not (all(of_values) if match == ALL else any(of_values)):
        return False
    return all(of_headers)


@given(
    st.lists(texts, max_size=4),
    st.lists(st.tuples(names, texts), max_size=3),
    st.booleans(),
    st.sampled_from([BY_DEFAULT, ALL, ANY]),
    st.lists(messages, min_size=1, max_size=4),
)
def test_a_filter_takes_what_the_oracle_takes(
    values: list[str],
    headers: list[tuple[str, str]],
    unfiltered: bool,
    match: int,
    several: list[tuple[Any, dict[str, Any]]],
) -> None:
    """One filter looks at several messages: what it found in one says nothing about the next."""
    pairs = [(name.encode(), text.encode()) for name, text in headers]
    asked = StreamFilter([text.encode() for text in values], pairs, unfiltered, match)
    for value, has in several:
        table = has if value is None else {"x-stream-filter-value": value, **has}
        properties = b"\x20\x00" + encode_table(table)
        assert accepts(asked, properties) is takes(values, headers, unfiltered, match, value, has)
