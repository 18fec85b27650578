"""Streams: what is published stays, and every consumer reads it at its own place."""

import math
import time
from typing import Any

import pytest

from tests.amqp import streams
from tests.amqp.field_tables import Typed
from tests.amqp.raw import Client
from tests.amqp.streams import Reader


def test_it_gives_every_reader_every_message(client: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b", b"c")
    expected = [(0, b"a"), (1, b"b"), (2, b"c")]
    assert streams.read(client, stream, 3) == expected
    assert streams.read(client, stream, 3) == expected
    assert streams.kept(client, stream) == 3


def test_it_delivers_what_comes_while_readers_wait(client: Client, other: Client) -> None:
    stream = streams.declare(client)
    one = Reader(client, stream, x_stream_offset="first")
    for body in (b"a", b"b", b"c"):
        streams.fill(other, stream, body)
        assert [message.body for message in one.take(1)] == [body]


def test_it_keeps_what_a_message_came_with(client: Client) -> None:
    stream = streams.declare(client)
    streams.fill(
        client,
        stream,
        b"x" * 300_000,
        content_type="text/plain",
        headers={"one": 1, "x-stream-offset": "not mine", "two": "zwei"},
        correlation_id="c",
        priority=3,
    )
    (got,) = Reader(client, stream, x_stream_offset="first").take(1)
    assert got.body == b"x" * 300_000
    assert got.properties == {
        "content_type": "text/plain",
        "headers": {"x-stream-offset": 0, "one": 1, "two": "zwei"},
        "correlation_id": "c",
        "priority": 3,
    }
    assert got.method.exchange == ""
    assert got.method.routing_key == stream
    assert not got.redelivered


@pytest.mark.parametrize("durable", [True, False])
def test_it_confirms_transient_messages_when_they_are_on_disk(
    client: Client, durable: bool
) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", delivery_mode=1 + durable)
    assert streams.kept(client, stream) == 1


OFFSETS: dict[str, tuple[Any, int]] = {
    "first": ("first", 0),
    "last": ("last", 9),
    "number": (4, 4),
    "number-behind-the-end": (10, 10),
    "number-far-behind-the-end": (2**60, 10),
    "negative": (-3, 7),
    "negative-beyond-the-start": (-300, 0),
    "long-ago": ("1h", 0),
    "next": ("next", 10),
    "nothing": (None, 10),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_it_begins_where_a_consumer_asks(client: Client, other: Client, case: str) -> None:
    wanted, first = OFFSETS[case]
    stream = streams.declare(client)
    streams.fill(client, stream, *(bytes([48 + i]) for i in range(10)))
    arguments = {} if wanted is None else {"x_stream_offset": wanted}
    reader = Reader(client, stream, **arguments)
    streams.fill(other, stream, b"the tenth")
    got = reader.take(11 - first)
    assert [streams.offset(message) for message in got] == list(range(first, 11))
    assert got[-1].body == b"the tenth"


def test_it_begins_at_a_time(client: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"before")
    # A second is the finest that can be asked for. Neither message stands close to it, since the
    # broker's clock is the wall's at its start and the monotonic one from then on.
    second = math.ceil(time.time() + 0.3)
    time.sleep(second + 0.3 - time.time())
    streams.fill(client, stream, b"after")
    assert streams.read(client, stream, 1, x_stream_offset=Typed("T", second)) == [(1, b"after")]
    assert streams.read(client, stream, 2, x_stream_offset=Typed("T", 0)) == [
        (0, b"before"),
        (1, b"after"),
    ]


@pytest.mark.parametrize("long_ago", ["9" * 12 + "Y", Typed("T", 0), -(2**63)])
def test_a_place_before_everything_is_the_first(client: Client, long_ago: Any) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b")
    assert streams.read(client, stream, 2, x_stream_offset=long_ago) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("far", [Typed("T", 2**53), Typed("T", 2**64 - 1), 2**63 - 1])
def test_a_place_behind_everything_is_the_end(client: Client, other: Client, far: Any) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"before")
    reader = Reader(other, stream, x_stream_offset=far)
    streams.fill(client, stream, b"after")
    (got,) = reader.take(1)
    assert got.body == b"after"


def test_it_moves_the_window_with_acks(client: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, *(bytes([i]) for i in range(5)))
    reader = Reader(client, stream, prefetch=2, x_stream_offset="first")
    one, _two = reader.take(2, ack=False)
    reader.is_at_end()
    reader.ack(one)
    (three,) = reader.take(1, ack=False)
    reader.is_at_end()
    reader.ack(three, multiple=True)
    assert [streams.offset(m) for m in reader.take(2)] == [3, 4]


@pytest.mark.parametrize("method", ["basic.nack", "basic.reject"])
def test_it_gives_back_to_the_reader_that_gave_back(
    client: Client, other: Client, method: str
) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b", b"c")
    reader = Reader(client, stream, x_stream_offset="first")
    someone_else = Reader(other, stream, x_stream_offset="next")
    got = reader.take(3, ack=False)
    client.send_method(reader.channel, method, delivery_tag=got[1].tag, requeue=True)
    (again,) = reader.take(1)
    assert (streams.offset(again), again.body, again.redelivered) == (1, b"b", True)
    client.send_method(reader.channel, method, delivery_tag=got[0].tag, requeue=False)
    reader.is_at_end()
    someone_else.is_at_end()
    assert streams.kept(client, stream) == 3


def test_it_gives_everything_back_in_order(client: Client, other: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, *(bytes([i]) for i in range(50)))
    reader = Reader(client, stream, prefetch=50, x_stream_offset="first")
    reader.take(50, ack=False)
    client.send_method(reader.channel, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
    again = reader.take(50)
    assert [streams.offset(message) for message in again] == list(range(50))
    assert all(message.redelivered for message in again)
    streams.fill(other, stream, b"next")
    assert [streams.offset(m) for m in reader.take(1)] == [50]


def test_it_purges_and_goes_on_counting(client: Client, other: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b")
    waiting = Reader(other, stream, x_stream_offset="next")
    assert client.call(1, "queue.purge", queue=stream).message_count == 2
    assert streams.kept(client, stream) == 0
    assert client.call(1, "queue.purge", queue=stream).message_count == 0
    streams.fill(client, stream, b"c")
    assert streams.read(client, stream, 1) == [(2, b"c")]
    assert [streams.offset(message) for message in waiting.take(1)] == [2]


def test_it_is_deleted_with_its_consumers_told(client: Client) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"a", b"b")
    Reader(client, stream, tag="reader", x_stream_offset="next")
    client.send_method(1, "queue.delete", queue=stream)
    assert client.expect("basic.cancel").consumer_tag == "reader"
    assert client.expect("queue.delete-ok", 1).message_count == 2
    streams.declare(client, stream)
    assert streams.kept(client, stream) == 0


def test_it_is_found_through_exchanges(client: Client) -> None:
    stream = streams.declare(client)
    client.call(1, "queue.bind", queue=stream, exchange="amq.topic", routing_key=f"{stream}.#")
    client.publish(1, "amq.topic", f"{stream}.x", b"routed")
    (got,) = Reader(client, stream, x_stream_offset="first").take(1)
    assert (got.body, got.method.exchange) == (b"routed", "amq.topic")


def test_it_takes_part_in_transactions(client: Client) -> None:
    stream = streams.declare(client)
    client.call(2, "channel.open")
    client.call(2, "tx.select")
    client.publish(2, "", stream, b"a")
    assert streams.kept(client, stream) == 0
    client.call(2, "tx.commit")
    assert streams.kept(client, stream) == 1


def test_it_refuses_basic_get(client: Client) -> None:
    stream = streams.declare(client)
    client.send_method(1, "basic.get", queue=stream)
    client.expect_connection_close(540, 60, 70, f"not supported by stream queues.*{stream}")


def test_it_reads_segments_that_are_sealed(client: Client) -> None:
    stream = streams.declare(client, x_stream_max_segment_size_bytes=4096)
    bodies = [b"%04d" % i * 100 for i in range(200)]
    streams.fill(client, stream, *bodies)
    assert streams.read(client, stream, 200, prefetch=300) == list(enumerate(bodies))
    assert streams.read(client, stream, 1, x_stream_offset=150) == [(150, bodies[150])]


PROPERTIES = {
    "not durable": ({"durable": False}, "non-durable"),
    "exclusive": ({"durable": True, "exclusive": True}, "exclusive"),
    "auto-delete": ({"durable": True, "auto_delete": True}, "auto-delete"),
}


@pytest.mark.parametrize("case", PROPERTIES)
def test_it_refuses_properties_that_no_stream_has(client: Client, name: str, case: str) -> None:
    given, wrong = PROPERTIES[case]
    client.send_method(1, "queue.declare", queue=name, arguments=streams.table({}), **given)
    client.expect_channel_close(
        1, 406, 50, 10, f"invalid property '{wrong}' for queue '{name}' in vhost '/'"
    )


REFUSED: dict[str, Any] = {
    "x-dead-letter-exchange": "amq.direct",
    "x-expires": 1000,
    "x-delivery-limit": 3,
    "x-overflow": "drop-head",
    "x-single-active-consumer": True,
    "x-message-ttl": 1000,
    "x-max-age": "7 days",
    "x-max-length": -1,
    "x-max-length-bytes": "many",
    "x-stream-max-segment-size-bytes": -1,
    "x-stream-filter-size-bytes": 8,
}


@pytest.mark.parametrize("argument", REFUSED)
def test_it_refuses_arguments_that_no_stream_has(client: Client, name: str, argument: str) -> None:
    arguments = streams.table({argument: REFUSED[argument]})
    client.send_method(1, "queue.declare", queue=name, durable=True, arguments=arguments)
    client.expect_channel_close(1, 406, 50, 10, f"'{argument}'")


@pytest.mark.parametrize("age", [7, "", "D", "-1D", "7d", "1.5h", "7D ", "٣D", "9" * 40 + "Y"])
def test_it_refuses_ages_that_are_none(client: Client, name: str, age: Any) -> None:
    arguments = streams.table({"x-max-age": age})
    client.send_method(1, "queue.declare", queue=name, durable=True, arguments=arguments)
    client.expect_channel_close(1, 406, 50, 10, "'x-max-age'")


@pytest.mark.parametrize(
    "argument", ["x-max-age", "x-stream-max-segment-size-bytes", "x-stream-filter-size-bytes"]
)
def test_a_classic_queue_refuses_what_only_a_stream_has(
    client: Client, name: str, argument: str
) -> None:
    value = "1h" if argument == "x-max-age" else 100
    client.send_method(1, "queue.declare", queue=name, arguments={argument: value})
    client.expect_channel_close(1, 406, 50, 10, f"'{argument}'.*of queue type classic")


def test_it_is_declared_again_as_it_is(client: Client) -> None:
    stream = streams.declare(client, x_max_age="1h")
    streams.declare(client, stream, x_max_age="1h")
    client.send_method(
        1, "queue.declare", queue=stream, durable=True, arguments=streams.table({"x-max-age": "2h"})
    )
    client.expect_channel_close(1, 406, 50, 10, "inequivalent arg 'x-max-age'")
    client.call(1, "channel.open")
    client.send_method(1, "queue.declare", queue=stream, durable=True)
    client.expect_channel_close(1, 406, 50, 10, "inequivalent arg")


CONSUMERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no-ack": ({"no_ack": True}, {}, "automatic acknowledgement not supported"),
    "exclusive": ({"exclusive": True}, {}, "exclusive consumers not supported"),
    "priority": ({}, {"x-priority": 1}, "x-priority not supported"),
    "offset-word": ({}, {"x-stream-offset": "middle"}, "'x-stream-offset'"),
    "offset-digits": ({}, {"x-stream-offset": "17"}, "'x-stream-offset'"),
    "offset-boolean": ({}, {"x-stream-offset": True}, "'x-stream-offset'"),
    "offset-float": ({}, {"x-stream-offset": 1.5}, "'x-stream-offset'"),
    "offset-table": ({}, {"x-stream-offset": {}}, "'x-stream-offset'"),
    "tracking": (
        {},
        {"x-stream-automatic-offset-tracking": 1},
        "'x-stream-automatic-offset-tracking'",
    ),
    "filter": ({}, {"x-stream-filter": 7}, "'x-stream-filter'"),
    "filter-array": ({}, {"x-stream-filter": [7]}, "'x-stream-filter'"),
    "filter-table": ({}, {"x-stream-filter": {"a": {}}}, "'x-stream-filter'"),
    "match-type": ({}, {"x-filter-match-type": "some"}, "'x-filter-match-type'"),
    "match-type-number": ({}, {"x-filter-match-type": 1}, "'x-filter-match-type'"),
    "unfiltered": ({}, {"x-stream-match-unfiltered": "yes"}, "'x-stream-match-unfiltered'"),
}


@pytest.mark.parametrize("case", CONSUMERS)
def test_it_refuses_consumers_that_no_stream_can_have(client: Client, case: str) -> None:
    fields, arguments, text = CONSUMERS[case]
    stream = streams.declare(client)
    client.call(1, "basic.qos", prefetch_count=10)
    client.send_method(1, "basic.consume", queue=stream, arguments=arguments, **fields)
    client.expect_channel_close(1, 406, 60, 20, text)


def test_it_refuses_a_consumer_without_a_prefetch(client: Client) -> None:
    stream = streams.declare(client)
    client.send_method(1, "basic.consume", queue=stream)
    client.expect_channel_close(1, 406, 60, 20, "consumer prefetch count is not set for stream")


def test_it_refuses_a_consumer_under_a_global_prefetch(client: Client) -> None:
    stream = streams.declare(client)
    client.call(1, "basic.qos", prefetch_count=10)
    client.call(1, "basic.qos", prefetch_count=10, **{"global": True})
    client.send_method(1, "basic.consume", queue=stream)
    client.expect_channel_close(1, 406, 60, 20, "global qos not supported by stream")
