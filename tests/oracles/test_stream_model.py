"""A stream of the broker against lists: any order of publishing, reading, keeping places, purging,
with retention and restarts."""

import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.amqp import arguments as fields
from tests.amqp import raw, streams
from tests.amqp.field_tables import Typed
from tests.amqp.raw import Client
from tests.amqp.streams import Reader
from tests.oracles.stream_model import Entry, StreamModel

# A night run raises this.
EXAMPLES = int(os.environ.get("STREAM_MODEL_EXAMPLES", "20"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
SEGMENT_SIZE = 4096
TAGS = ("one", "two")

bodies = st.builds(
    lambda byte, size: bytes([byte]) * size,
    st.integers(0, 255),
    st.integers(0, 40) | st.integers(500, 3000) | st.just(9000),
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "x-stream-filter-value": st.sampled_from(["a", "b", "c", "a,c", "b, c", "", 7]),
        "kind": st.sampled_from(["x", 3, True, "3"]),
    },
)
values = st.sampled_from(["a", "b", "c", "a,b", "", "none"])
tables = st.fixed_dictionaries({"kind": st.sampled_from(["x", 3, "true"])})
filters = st.fixed_dictionaries(
    {},
    optional={
        "x-stream-filter": values | tables | st.lists(values | tables, max_size=3),
        "x-stream-match-unfiltered": st.booleans(),
        "x-filter-match-type": st.sampled_from(["all", "any"]),
    },
)
starts = st.sampled_from(["first", "last", "next", None]) | st.integers(-12, 60)
# Times that are far from every message, and what they come to.
times = st.sampled_from([("1h", "first"), (Typed("T", 0), "first"), (Typed("T", 2**33), "next")])


class StreamMachine(RuleBasedStateMachine):
    """One stream; each rule does the same to the broker and to the model."""

    address: tuple[str, int]
    max_length = -1
    max_bytes = -1

    def __init__(self) -> None:
        super().__init__()
        self.model = StreamModel(SEGMENT_SIZE, self.max_length, self.max_bytes)
        self.stream = f"stream-model-{uuid.uuid4().hex}"
        self.connect()
        limits = {"x_max_length": self.max_length, "x_max_length_bytes": self.max_bytes}
        streams.declare(
            self.client,
            self.stream,
            x_stream_max_segment_size_bytes=SEGMENT_SIZE,
            **{name: limit for name, limit in limits.items() if limit >= 0},
        )

    def connect(self) -> None:
        """A connection whose channel confirms."""
        self.client = Client.open(self.address)
        self.client.call(1, "confirm.select")
        self.confirms = 0

    def teardown(self) -> None:
        self.client.call(1, "queue.delete", queue=self.stream)
        self.client.close()

    @rule(parts=st.lists(st.tuples(bodies, headers), min_size=1, max_size=8))
    def publish(self, parts: list[tuple[bytes, dict[str, Any]]]) -> None:
        data = b""
        for body, given in parts:
            listed = {"headers": given} if given else {}
            size = len(fields.properties(listed))
            self.model.publish(body, given, len(self.stream), size)
            data += raw.publish(1, "", self.stream, body, **listed)
        self.client.send(data)
        self.client.expect_confirms(1, self.confirms + len(parts), first=self.confirms + 1)
        self.confirms += len(parts)
        self.model.retain()

    @rule(start=starts, given=filters)
    def read(self, start: Any, given: dict[str, Any]) -> None:
        self.check_read(start, self.model.start_of(start), given)

    @rule(start=times, given=filters)
    def read_from_a_time(self, start: tuple[Any, str], given: dict[str, Any]) -> None:
        self.check_read(start[0], self.model.start_of(start[1]), given)

    def check_read(self, asked: Any, start: int, given: dict[str, Any]) -> None:
        """A new reader gets just what the model says."""
        arguments = given if asked is None else {**given, "x-stream-offset": asked}
        reader = Reader(self.client, self.stream, prefetch=1000, **arguments)
        self.check_taken(reader, self.model.read(start, given))
        reader.close()

    def check_taken(self, reader: Reader, expected: list[Entry]) -> list[raw.Message]:
        """The reader is given these messages and no more."""
        got = reader.take(len(expected), ack=False)
        assert [(streams.offset(message), message.body) for message in got] == [
            (entry.offset, entry.body) for entry in expected
        ]
        reader.is_at_end()
        return got

    @rule(
        data=st.data(),
        tag=st.sampled_from(TAGS),
        start=starts,
        asks=st.booleans(),
        given=filters,
    )
    def read_on(
        self, data: st.DataObject, tag: str, start: Any, asks: bool, given: dict[str, Any]
    ) -> None:
        """A consumer goes on at the place that is kept for its tag."""
        arguments = dict(given)
        if asks:
            arguments["x-stream-automatic-offset-tracking"] = True
        else:
            start = None
        if start is not None:
            arguments["x-stream-offset"] = start
        begin = self.model.places.get(tag, -1) + 1 or self.model.start_of(start)
        expected = self.model.read(begin, given)
        reader = Reader(self.client, self.stream, tag=tag, prefetch=1000, **arguments)
        got = self.check_taken(reader, expected)
        fates = data.draw(
            st.lists(
                st.sampled_from(["ack", "reject", "keep", "requeue"]),
                min_size=len(got),
                max_size=len(got),
            )
        )
        self.client.send(
            b"".join(
                self.settling(reader.channel, message.tag, fate)
                for message, fate in zip(got, fates, strict=True)
            )
        )
        again = [entry for entry, fate in zip(expected, fates, strict=True) if fate == "requeue"]
        returned = self.check_taken(reader, again)
        assert all(message.redelivered for message in returned)
        kept = [entry.offset for entry, fate in zip(expected, fates, strict=True) if fate == "keep"]
        settles = any(fate != "keep" for fate in fates)
        for message in returned:
            reader.ack(message)
        reader.close()
        if settles:
            # What the filter passed over is done with as well.
            place = min(kept, default=self.model.next_offset) - 1
            if place >= 0:
                self.model.places[tag] = place

    def settling(self, channel: int, tag: int, fate: str) -> bytes:
        """What is sent for a message."""
        if fate == "ack":
            return raw.method(channel, "basic.ack", delivery_tag=tag)
        if fate == "keep":
            return b""
        return raw.method(channel, "basic.reject", delivery_tag=tag, requeue=fate == "requeue")

    @rule()
    def purge(self) -> None:
        got = self.client.call(1, "queue.purge", queue=self.stream)
        assert got.message_count == self.model.purge()

    @invariant()
    def counts_are_the_same(self) -> None:
        assert streams.kept(self.client, self.stream) == len(self.model.entries)


class ShortStreamMachine(StreamMachine):
    """The same with a maximum length."""

    max_length = 6


class SmallStreamMachine(StreamMachine):
    """The same with a maximum of bytes."""

    max_bytes = 10_000


@pytest.mark.parametrize("machine", [StreamMachine, ShortStreamMachine, SmallStreamMachine])
def test_a_stream_is_a_list_of_segments(
    amqp_address: tuple[str, int], machine: type[StreamMachine]
) -> None:
    machine.address = amqp_address
    run_state_machine_as_test(machine, settings=SETTINGS)


class RestartedStreamMachine(StreamMachine):
    """The same with a broker that is killed or stopped right after a message is confirmed."""

    restart: Callable[[bool], None]

    @rule(
        parts=st.lists(st.tuples(bodies, headers), min_size=1, max_size=8),
        end=st.sampled_from([None, "kill", "stop"]),
    )
    def publish(  # type: ignore[override]
        self, parts: list[tuple[bytes, dict[str, Any]]], end: str | None
    ) -> None:
        super().publish(parts)
        if end is None:
            return
        type(self).restart(end == "kill")
        self.client.cut()
        self.connect()
        self.model.restart()


def test_a_stream_is_a_list_of_segments_over_restarts(broker: Any) -> None:
    def restart(kill: bool) -> None:
        broker.end(kill=kill)
        broker.start()

    class Machine(RestartedStreamMachine):
        max_length = 9

        @property
        def address(self) -> tuple[str, int]:  # type: ignore[override]
            return broker.host, broker.amqp_port

        @address.setter
        def address(self, _value: tuple[str, int]) -> None:
            """It is always the broker's own."""

    Machine.restart = staticmethod(restart)
    run_state_machine_as_test(
        Machine, settings=settings(SETTINGS, max_examples=EXAMPLES // 10, stateful_step_count=10)
    )
