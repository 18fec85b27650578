"""The broker's codecs against the plain ones of the test client."""

import itertools
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.fields import codec as fields
from broker.fields import properties
from broker.kernel.turn import Turn
from broker.schema.errors import AMQPError
from broker.wire import method_frames, methods
from broker.wire.argument_lists import decode_arguments, encode_arguments
from broker.wire.frame_parser import FrameParser
from tests.amqp import arguments, field_tables, raw
from tests.amqp.methods import METHODS, PROPERTIES
from tests.inner import check_table

short = st.text(max_size=60).filter(lambda text: len(text.encode("utf-8", "replace")) <= 255)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
key = text.filter(lambda value: len(value.encode()) <= 255)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    text,
    st.binary(max_size=40),
)
tables = st.dictionaries(
    key,
    st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(key, inner, max_size=4),
        max_leaves=20,
    ),
    max_size=6,
)


@given(tables)
def test_tables_are_encoded_as_the_plain_codec_does(table: dict[str, Any]) -> None:
    data = fields.encode_table(table)
    assert data == field_tables.encode_table(table)
    assert fields.Reader(data).table() == table
    assert field_tables.Reader(data).table() == table


typed = st.one_of(
    st.builds(field_tables.Typed, st.just("b"), st.integers(-128, 127)),
    st.builds(field_tables.Typed, st.just("B"), st.integers(0, 255)),
    st.builds(field_tables.Typed, st.just("s"), st.integers(-(2**15), 2**15 - 1)),
    st.builds(field_tables.Typed, st.just("u"), st.integers(0, 2**16 - 1)),
    st.builds(field_tables.Typed, st.just("i"), st.integers(0, 2**32 - 1)),
    st.builds(field_tables.Typed, st.just("l"), st.integers(-(2**63), 2**63 - 1)),
    st.builds(field_tables.Typed, st.just("f"), st.floats(width=32, allow_nan=False)),
    st.builds(field_tables.Typed, st.just("T"), st.integers(0, 2**64 - 1)),
)


@given(st.dictionaries(key, typed, max_size=8))
def test_every_field_type_is_read_by_value(table: dict[str, field_tables.Typed]) -> None:
    data = field_tables.encode_table(table)
    got = fields.Reader(data).table()
    assert got == {name: item.value for name, item in table.items()}
    assert fields.Reader(fields.encode_table(got)).table() == got


@given(st.integers(0, 255), st.integers(-(2**31), 2**31 - 1))
def test_decimals_keep_their_value(scale: int, number: int) -> None:
    data = field_tables.encode_table({"d": field_tables.Typed("D", (scale, number))})
    got = fields.Reader(data).table()["d"]
    assert got.scaleb(scale) == number


@pytest.mark.parametrize("depth", range(fields.DEPTH_MAX - 2, fields.DEPTH_MAX + 3))
@pytest.mark.parametrize("holds", [lambda value: {"in": value}, lambda value: [value]])
def test_whatever_is_encoded_can_be_decoded(depth: int, holds: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(depth - 1):
        value = holds(value)
    if depth > fields.DEPTH_MAX:
        with pytest.raises(ValueError, match="nested deeper"):
            fields.encode_table({"value": value})
    else:
        encoded = fields.encode_table({"value": value})
        assert fields.Reader(encoded).table() == {"value": value}


def is_refused(read: Callable[[], Any]) -> bool:
    try:
        read()
    except fields.Malformed:
        return True
    return False


@given(tables, st.data())
def test_headers_are_taken_if_and_only_if_they_can_be_decoded(
    table: dict[str, Any], data: st.DataObject
) -> None:
    whole = bytearray(fields.encode_table(table)[4:])
    for _ in range(data.draw(st.integers(0, 3))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(
                st.sampled_from(b"AFSxIlVtZ\x00\x01\x05\xff")
            )
    del whole[len(whole) - data.draw(st.integers(0, 3)) :]
    listed = bytes(whole)
    framed = struct.pack(">I", len(listed)) + listed
    assert is_refused(lambda: check_table(listed)) == is_refused(
        lambda: fields.Reader(framed).table()
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_malformed(data: bytes) -> None:
    for framed in (data, struct.pack(">I", len(data)) + data):
        try:
            fields.Reader(framed).table()
        except fields.Malformed:
            pass


@given(st.binary(max_size=120))
def test_any_bytes_are_properties_or_malformed(data: bytes) -> None:
    try:
        got = properties.decode(data)
    except fields.Malformed:
        return
    properties.encode(got)


strategies: dict[str, st.SearchStrategy[Any]] = {
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "bit": st.booleans(),
    "shortstr": key,
    "longstr": st.binary(max_size=100),
    "table": tables,
}


@given(st.fixed_dictionaries({}, optional={name: strategies[kind] for name, kind in PROPERTIES}))
def test_properties_are_those_of_the_plain_codec(values: dict[str, Any]) -> None:
    assert properties.decode(arguments.properties(values)) == values
    shown = {name: value for name, value in values.items() if value != {} or name != "headers"}
    assert arguments.decode_properties(properties.encode(values)) == shown


BROKERS_NAME = {"nowait": "no_wait", "global": "global_"}


@pytest.mark.parametrize("name", METHODS)
def test_the_method_table_is_the_specification(name: str) -> None:
    row, own = methods.BY_NAME.get(name), METHODS[name]
    if row is None:
        assert name.startswith(("connection.secure", "access.")), f"{name} is missing"
        return
    assert (row.class_id, row.method_id) == (own.class_id, own.method_id)
    kinds = [kind.replace("timestamp", "longlong") for _, kind in row.fields]
    assert kinds == [kind for _, kind in own.fields]
    for (field, _), (own_field, _) in zip(row.fields, own.fields, strict=True):
        assert field.startswith("_") or field == BROKERS_NAME.get(own_field, own_field)


@given(st.data())
def test_method_arguments_are_those_of_the_plain_codec(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(set(METHODS) & set(methods.BY_NAME))))
    given_ = {field: data.draw(strategies[kind]) for field, kind in METHODS[name].fields}
    payload = raw.method(1, name, **given_)[7:-1]
    got = decode_arguments(methods.BY_NAME[name], payload)
    hidden = {
        own for (own, _), (field, _) in zip(METHODS[name].fields, methods.BY_NAME[name].fields,
                                            strict=True) if field.startswith("_")
    }  # fmt: skip
    assert got == {
        BROKERS_NAME.get(field, field): value
        for field, value in given_.items()
        if field not in hidden
    }
    again = encode_arguments(methods.BY_NAME[name], got)
    zeros = {field: value for field, value in given_.items() if field not in hidden}
    assert again == raw.method(1, name, **zeros)[7:-1]


class Heard(FrameParser):
    """A connection that notes what it is told."""

    def __init__(self, schedule: Callable[[Callable[[], None]], object] = id) -> None:
        super().__init__(Turn(schedule), self)
        self.heard_methods: list[tuple[int, str, dict[str, Any]]] = []
        self.headers: list[bytes] = []
        self.failures: list[AMQPError] = []

    def on_protocol_header(self, header: bytes) -> None:
        self.headers.append(bytes(header))
        self.set_phase(2)
        self.set_tuned(100, 4096)

    def on_method(self, channel: object, number: int, name: str, arguments: dict[str, Any]) -> None:
        self.heard_methods.append((number, name, arguments))

    def fail(self, error: AMQPError) -> None:
        self.failures.append(error)

    def write(self, data: bytes) -> None:
        """As a transport."""

    def label(self) -> str:
        return "test"


class Sharing(Heard):
    """One that shares the loop: `turns` are the calls it asked for."""

    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        super().__init__(self.turns.append)
        self.reads = True

    def stop_reading(self) -> None:
        self.reads = False

    def read_on(self) -> None:
        self.reads = True

    def take_turns(self) -> None:
        """Until nothing waits for one."""
        while self.turns:
            self.turns.pop()()


@given(
    st.lists(
        st.tuples(st.sampled_from(["connection.update-secret", "connection.close"]), key),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_frames_are_the_same_however_the_bytes_are_split(
    sent: list[tuple[str, str]], data: st.DataObject
) -> None:
    stream = raw.PROTOCOL_HEADER
    for name, word in sent:
        if name == "connection.close":
            stream += raw.method(0, name, reply_text=word)
        else:
            stream += raw.method(0, name, new_secret=word.encode() * 3, reason=word)
        stream += raw.frame(raw.HEARTBEAT, 0, b"")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12)))
    connection = Sharing()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        connection.feed(stream[start:end])
    connection.take_turns()
    assert connection.headers == [raw.PROTOCOL_HEADER]
    assert not connection.failures
    assert [name for _, name, _ in connection.heard_methods] == [name for name, _ in sent]
    for (_, name, got), (_, word) in zip(connection.heard_methods, sent, strict=True):
        assert got["reply_text" if name == "connection.close" else "reason"] == word
    assert connection.recv_cnt == 2 * len(sent)


@given(st.binary(max_size=400))
def test_any_bytes_end_in_errors_not_in_exceptions(data: bytes) -> None:
    connection = Heard()
    connection.feed(raw.PROTOCOL_HEADER + data)
    connection.feed(data)


def test_many_methods_in_one_chunk_take_turns_with_other_connections() -> None:
    connection = Sharing()
    words = [f"word {number}" for number in range(200)]
    stream = raw.PROTOCOL_HEADER + b"".join(
        raw.method(0, "connection.update-secret", new_secret=b"", reason=word) for word in words
    )
    cut = len(stream) - 10
    connection.feed(stream[:cut])
    taken = [len(connection.heard_methods)]
    # What comes meanwhile waits behind it.
    connection.feed(stream[cut:])
    assert len(connection.heard_methods) == taken[0]
    while connection.turns:
        assert not connection.reads
        connection.turns.pop()()
        taken.append(len(connection.heard_methods))
    assert connection.reads
    assert [got["reason"] for _, _, got in connection.heard_methods] == words
    parts = [end - start for start, end in itertools.pairwise([0, *taken])]
    assert max(parts) < 50
    assert len(parts) > 4


def test_answers_to_many_channels_leave_no_objects_behind() -> None:
    """Each would keep a page of the objects in memory that came and went with its channel."""
    names = [name for name, row in methods.BY_NAME.items() if not row.fields]
    for name in names:
        method_frames.method_frame(1, name)
    before = sys.getallocatedblocks()
    for channel in range(2, 2048):
        for name in names:
            assert method_frames.method_frame(channel, name) == raw.method(channel, name)
    assert sys.getallocatedblocks() - before < 500
