"""The client without sockets: frames split anywhere, faults of servers, confirms, batches."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.channel import ChannelCore, ConsumerCore
from broker.client.core import PROTOCOL_HEADER, ClientCore
from broker.client.errors import (
    ChannelClosed,
    ClientError,
    ConnectionClosed,
    ConnectionLost,
    ProtocolError,
)
from broker.client.uri import Endpoint
from broker.fields import properties
from broker.wire.argument_lists import decode_arguments, frame
from broker.wire.method_frames import method_frame
from broker.wire.methods import BY_INDEX

TOKEN = object()


def header(body: int, listed: bytes = b"\0\0", channel: int = 1) -> bytes:
    return frame(2, channel, struct.pack(">HHQ", 60, 0, body) + listed)


def delivery(tag: int, body: bytes, *, consumer: str = "c", part: int = 1000, **more: Any) -> bytes:
    """basic.deliver with its content, the body in frames of at most `part` bytes."""
    words = {"exchange": "ex", "routing_key": "key", **more}
    start = method_frame(1, "basic.deliver", consumer_tag=consumer, delivery_tag=tag, **words)
    parts = [frame(3, 1, body[at : at + part]) for at in range(0, len(body), part)]
    return start + header(len(body)) + b"".join(parts)


def sent(core: ClientCore) -> list[tuple[int, str, dict[str, Any]]]:
    """The method frames of the output, as (channel, name, arguments); other frames by kind."""
    data = core.take_output().removeprefix(PROTOCOL_HEADER)
    found: list[tuple[int, str, dict[str, Any]]] = []
    while data:
        kind, channel, size = struct.unpack_from(">BHI", data)
        payload, data = data[7 : 7 + size], data[8 + size :]
        if kind == 1:
            method = BY_INDEX[int.from_bytes(payload[:4], "big")]
            found.append((channel, method.name, decode_arguments(method, payload)))
        else:
            found.append((channel, f"frame {kind}", {"payload": payload}))
    return found


def events(core: ClientCore) -> list[tuple[Any, ...]]:
    found = [*core.events]
    core.events.clear()
    return found


TUNE = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 60}


def opened(endpoint: Endpoint | None = None, **tune: int) -> ClientCore:
    """A connection that may be used."""
    core = ClientCore(endpoint or Endpoint())
    core.feed(
        method_frame(0, "connection.start", version_minor=9, mechanisms="PLAIN AMQPLAIN")
        + method_frame(0, "connection.tune", **{**TUNE, **tune})
        + method_frame(0, "connection.open-ok")
    )
    assert events(core) == [("open",)]
    return core


def channelled() -> tuple[ClientCore, ChannelCore]:
    """An open connection with an open channel."""
    core = opened()
    channel = core.open_channel(TOKEN)
    core.feed(method_frame(1, "channel.open-ok"))
    assert events(core) == [("reply", TOKEN, {})]
    core.take_output()
    return core, channel


def consuming() -> tuple[ClientCore, ChannelCore, ConsumerCore]:
    core, channel = channelled()
    consumer = channel.add_consumer(b"c")
    return core, channel, consumer


# Logging in.


def test_it_logs_in_and_agrees_on_limits() -> None:
    core = ClientCore(Endpoint(user="ada", password="pw", vhost="v", frame_max=8192, heartbeat=0))
    core.feed(method_frame(0, "connection.start", version_minor=9, mechanisms="PLAIN"))
    core.feed(method_frame(0, "connection.tune", channel_max=0, frame_max=131072, heartbeat=30))
    (_, start, login), (_, tune, limits), (_, _, where) = sent(core)
    assert (start, login["mechanism"], login["response"]) == (
        "connection.start-ok",
        "PLAIN",
        b"\0ada\0pw",
    )
    assert login["client_properties"]["capabilities"]["publisher_confirms"] is True
    assert (tune, limits) == (
        "connection.tune-ok",
        {"channel_max": 2047, "frame_max": 8192, "heartbeat": 30},
    )
    assert where["virtual_host"] == "v"


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (
            method_frame(0, "connection.close", reply_code=403, reply_text="ACCESS_REFUSED - no"),
            ConnectionClosed,
            "403 ACCESS_REFUSED",
        ),
        (b"AMQP\0\0\x09\x01", ProtocolError, "another version"),
        (
            method_frame(0, "connection.start", version_minor=9, mechanisms="SCRAM"),
            ProtocolError,
            "only SCRAM",
        ),
        (method_frame(0, "connection.open-ok"), ProtocolError, "at the wrong time"),
    ],
)
def test_it_says_why_it_could_not_log_in(data: bytes, error: type, text: str) -> None:
    core = ClientCore(Endpoint())
    core.feed(data)
    ((kind, why),) = events(core)
    assert kind == "closed" and type(why) is error
    assert text in str(why)
    core.feed(data)
    assert events(core) == [], "nothing follows the end"


def test_it_guesses_that_a_login_was_refused_where_the_server_only_hangs_up() -> None:
    core = ClientCore(Endpoint())
    core.feed(method_frame(0, "connection.start", version_minor=9, mechanisms="PLAIN"))
    core.lost(ConnectionLost("end"))
    ((_, why),) = events(core)
    assert "may have been refused" in str(why)


# What is received.


@settings(max_examples=60)
@given(
    bodies=st.lists(st.binary(max_size=3000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 4000), max_size=40),
    part=st.sampled_from([1, 7, 1000, 4088]),
    data=st.data(),
)
def test_it_puts_deliveries_together_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int], part: int, data: st.DataObject
) -> None:
    core, _, consumer = consuming()
    bodies = [body[:40] for body in bodies] if part == 1 else bodies
    stream = b"".join(delivery(tag, body, part=part) for tag, body in enumerate(bodies, 1))
    found: list[tuple[int, bytes, bytes, bytes]] = []
    while stream:
        cut = cuts.pop() if cuts else data.draw(st.integers(1, len(stream)))
        core.feed(stream[:cut])
        stream = stream[cut:]
        for event in events(core):
            assert event == ("deliveries", consumer)
        # Sometimes the batch is left to grow.
        if data.draw(st.booleans()) or not stream:
            for one in consumer.batch.messages():
                found.append((one.delivery_tag, one.exchange, one.routing_key, one.body))
            consumer.batch.drop()
    assert found == [(tag, b"ex", b"key", body) for tag, body in enumerate(bodies, 1)]


@settings(max_examples=200)
@given(
    data=st.binary(max_size=200),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
)
def test_no_bytes_of_a_server_raise_or_go_beyond_their_buffer(
    data: bytes, flips: list[tuple[int, int]]
) -> None:
    core, channel, _ = consuming()
    channel.select_confirms()
    stream = bytearray(
        delivery(1, b"body")
        + method_frame(1, "basic.return", reply_code=312, reply_text="NO_ROUTE")
        + header(2)
        + frame(3, 1, b"xx")
        + method_frame(1, "basic.ack", delivery_tag=1)
        + data
    )
    for at, value in flips:
        stream[at % len(stream)] = value
    core.feed(bytes(stream))
    for event in events(core):
        assert event[0] != "closed" or isinstance(event[1], ClientError)


def test_it_keeps_what_a_message_says_of_itself() -> None:
    core, _, consumer = consuming()
    listed = properties.encode({"delivery_mode": 2, "headers": {"a": 1}})
    start = method_frame(
        1, "basic.deliver", consumer_tag="c", delivery_tag=2**63, redelivered=True, exchange=""
    )
    core.feed(start + header(0, listed))
    (message,) = consumer.batch.messages()
    assert (message.delivery_tag, message.redelivered, message.body) == (2**63, True, b"")
    assert message.decoded() == {"delivery_mode": 2, "headers": {"a": 1}}
    assert consumer.batch.last_tag == 2**63
    with pytest.raises(IndexError):
        consumer.batch.message(1)


def test_it_hands_deliveries_to_their_consumers() -> None:
    core, channel, first = consuming()
    second = channel.add_consumer(b"d")
    core.feed(
        delivery(1, b"a")
        + delivery(2, b"b", consumer="d")
        + delivery(3, b"c", consumer="cancelled before")
        + delivery(4, b"d")
    )
    assert events(core) == [("deliveries", first), ("deliveries", second)]
    assert [one.body for one in first.batch.messages()] == [b"a", b"d"]
    assert [one.body for one in second.batch.messages()] == [b"b"]
    channel.remove_consumer(first)
    core.feed(delivery(5, b"e"))
    assert events(core) == []


def test_it_answers_requests_in_their_order() -> None:
    core, channel = channelled()
    channel.request("queue.declare", "one", queue="q")
    channel.request("basic.get", "two", queue="q")
    channel.request("basic.get", "three", queue="q")
    assert [name for _, name, _ in sent(core)] == ["queue.declare", "basic.get", "basic.get"]
    core.feed(method_frame(1, "queue.declare-ok", queue="q", message_count=3, consumer_count=0))
    core.feed(method_frame(1, "basic.get-ok", delivery_tag=7, exchange="e", routing_key="k"))
    core.feed(header(3) + frame(3, 1, b"one"))
    core.feed(method_frame(1, "basic.get-empty"))
    declared, got, empty = events(core)
    assert declared[1:] == ("one", {"queue": "q", "message_count": 3, "consumer_count": 0})
    assert (got[1], got[2].delivery_tag, got[2].body) == ("two", 7, b"one")
    assert empty == ("reply", "three", None)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x01\0\x01\0\0\0\x04\0\0\0\0\xcd", "does not end with 0xCE"),
        (b"\x01\0\x01\x7f\xff\xff\xff", "were agreed on"),
        (b"\x09\0\x01\0\0\0\0\xce", "a frame of type 9"),
        (frame(1, 1, b"\0"), "too short"),
        (frame(1, 1, b"\0\x3c\0\x63"), "unknown"),
        (frame(3, 1, b"x"), "without its header"),
        (header(3), "without its method"),
        (delivery(1, b"")[:-8] + frame(1, 1, b"\0\0\0\0"), "before its content was whole"),
        (frame(1, 1, b"\0\x3c\0\x3c\xffx"), "too short"),
        (frame(1, 1, b"\0\x3c\0\x3c\x01c" + bytes(9) + b"\xff"), "too short"),
        (delivery(1, b"abc", part=2)[:-9] + frame(3, 1, b"cd"), "longer than its header says"),
        (
            method_frame(1, "basic.deliver", consumer_tag="c") + header(1 << 40),
            "this client takes",
        ),
        (method_frame(1, "queue.declare-ok", queue="q"), "was not asked for"),
        (method_frame(1, "basic.get-ok", delivery_tag=1), "was not asked for"),
        (method_frame(1, "basic.ack", delivery_tag=1), "which has none"),
        (method_frame(0, "connection.open-ok"), "at the wrong time"),
    ],
)
def test_it_ends_with_a_server_that_breaks_the_protocol(data: bytes, text: str) -> None:
    core, channel, _ = consuming()
    channel.request("queue.purge", "waiting", queue="q")
    core.take_output()
    if text == "before its content was whole":
        data = method_frame(1, "basic.deliver", consumer_tag="c") + frame(1, 1, b"\0\x32\0\x0b")
    core.feed(data)
    failed, (kind, error) = events(core)
    assert failed[:2] == ("failed", "waiting")
    assert (kind, type(error)) == ("closed", ProtocolError)
    assert text in str(error)
    ((_, name, close),) = sent(core)
    assert (name, close["reply_code"]) == ("connection.close", 501)
    with pytest.raises(ProtocolError):
        channel.publish(b"", b"", b"\0\0", b"")


def test_it_drops_what_comes_for_a_channel_that_is_closed() -> None:
    core, channel, consumer = consuming()
    channel.request("queue.declare", "waiting", queue="q")
    core.take_output()
    close = method_frame(1, "channel.close", reply_code=404, reply_text="NOT_FOUND", class_id=50)
    core.feed(close + delivery(1, b"late"))
    failed, closed = events(core)
    assert failed[:2] == ("failed", "waiting")
    assert closed[:2] == ("channel-closed", channel)
    error = closed[2]
    assert type(error) is ChannelClosed
    assert (error.code, error.text, error.method) == (404, "NOT_FOUND", 50 << 16)
    assert [name for _, name, _ in sent(core)] == ["channel.close-ok"]
    with pytest.raises(ChannelClosed):
        channel.request("queue.declare", "more")
    assert core.open_channel(TOKEN).number == 1, "the number is free again"
    assert core.closed is None
    assert consumer.batch.count == 0


def test_it_closes_a_channel_and_the_connection_in_order() -> None:
    core, channel = channelled()
    channel.close("closing")
    core.feed(method_frame(1, "channel.close-ok"))
    reply, closed = events(core)
    assert reply == ("reply", "closing", {})
    assert closed[2].code == 200
    core.close()
    core.feed(method_frame(0, "connection.blocked", reason="late"))
    assert events(core) == []
    core.feed(method_frame(0, "connection.close-ok"))
    ((_, error),) = events(core)
    assert (type(error), error.code) == (ConnectionClosed, 200)


def test_it_tells_of_blocked_flow_and_cancelled_consumers() -> None:
    core, channel, consumer = consuming()
    core.feed(method_frame(0, "connection.blocked", reason="low on disk"))
    assert (events(core), core.blocked) == ([("blocked", "low on disk")], "low on disk")
    core.feed(method_frame(0, "connection.unblocked"))
    assert (events(core), core.blocked) == ([("unblocked",)], None)
    core.feed(method_frame(1, "channel.flow", active=False))
    assert sent(core)[-1] == (1, "channel.flow-ok", {"active": False})
    core.feed(method_frame(1, "basic.cancel", consumer_tag="c", no_wait=True))
    assert events(core) == [("cancelled", consumer)]
    assert channel.consumers == []
    core.feed(b"\x08\0\0\0\0\0\0\xce")
    assert events(core) == []
    core.send_heartbeat()
    assert core.take_output() == b"\x08\0\0\0\0\0\0\xce"


# What is sent.


@settings(max_examples=50)
@given(
    body=st.binary(max_size=20000),
    frame_max=st.sampled_from([4096, 4097, 131072]),
    exchange=st.binary(max_size=255),
    key=st.binary(max_size=255),
    mandatory=st.booleans(),
)
def test_it_cuts_a_publish_into_frames_that_were_agreed_on(
    body: bytes, frame_max: int, exchange: bytes, key: bytes, mandatory: bool
) -> None:
    core = opened(frame_max=frame_max)
    channel = core.open_channel(TOKEN)
    core.take_output()
    listed = properties.encode({"message_id": "m"})
    assert channel.publish(exchange, key, listed, body, mandatory) == 0
    data = core.take_output()
    kinds, parts = [], []
    while data:
        kind, number, size = struct.unpack_from(">BHI", data)
        assert number == 1 and size + 8 <= frame_max and data[7 + size] == 0xCE
        kinds.append(kind)
        parts.append(data[7 : 7 + size])
        data = data[8 + size :]
    method = decode_arguments(BY_INDEX[60 << 16 | 40], parts[0])
    assert method["exchange"].encode("utf-8", "surrogateescape") == exchange
    assert method["routing_key"].encode("utf-8", "surrogateescape") == key
    assert method["mandatory"] is mandatory
    assert parts[1] == struct.pack(">HHQ", 60, 0, len(body)) + listed
    assert kinds == [1, 2, *[3] * -(-len(body) // (frame_max - 8))]
    assert b"".join(parts[2:]) == body


def test_it_refuses_names_and_properties_that_do_not_fit() -> None:
    _, channel = channelled()
    with pytest.raises(ValueError, match="at most 255"):
        channel.publish(b"e" * 256, b"", b"\0\0", b"")
    with pytest.raises(ValueError, match="longer than a frame"):
        channel.publish(b"", b"", bytes(131072), b"")
    with pytest.raises(ValueError, match="longer than 255"):
        channel.request("queue.declare", TOKEN, queue="q" * 256)


def test_it_publishes_a_batch_again_byte_for_byte() -> None:
    core, _, consumer = consuming()
    bodies = [b"", b"one", b"x" * 300_000]
    core.feed(b"".join(delivery(tag, body, part=100_000) for tag, body in enumerate(bodies, 1)))
    other, target = channelled()
    target.select_confirms()
    assert target.republish(consumer.batch, 0, 3) == 1
    assert target.republish(consumer.batch, 1, 2, b"there", b"") == 4
    with pytest.raises(IndexError):
        target.republish(consumer.batch, 2, 4)
    published = [(name, facts) for _, name, facts in sent(other) if name == "basic.publish"]
    names = [(facts["exchange"], facts["routing_key"]) for _, facts in published]
    assert names == [("ex", "key")] * 3 + [("there", "")]
    assert target.unconfirmed is not None and target.unconfirmed.count == 4


def test_it_acknowledges() -> None:
    core, channel = channelled()
    channel.ack(5)
    channel.ack(9, multiple=True)
    channel.nack(10, requeue=False)
    channel.nack(11, multiple=True)
    assert [(name, facts) for _, name, facts in sent(core)] == [
        ("basic.ack", {"delivery_tag": 5, "multiple": False}),
        ("basic.ack", {"delivery_tag": 9, "multiple": True}),
        ("basic.nack", {"delivery_tag": 10, "multiple": False, "requeue": False}),
        ("basic.nack", {"delivery_tag": 11, "multiple": True, "requeue": True}),
    ]


def test_it_opens_as_many_channels_as_the_server_allows() -> None:
    core = opened(channel_max=2)
    assert [core.open_channel(TOKEN).number for _ in range(2)] == [1, 2]
    with pytest.raises(ValueError, match="allows 2"):
        core.open_channel(TOKEN)


def test_it_tells_of_confirms_and_returns() -> None:
    core, channel = channelled()
    channel.select_confirms()
    for _ in range(3):
        channel.publish(b"", b"nowhere", b"\0\0", b"back", True)
    back = method_frame(
        1, "basic.return", reply_code=312, reply_text="NO_ROUTE", routing_key="nowhere"
    )
    core.feed(back + header(4) + frame(3, 1, b"back"))
    core.feed(method_frame(1, "basic.ack", delivery_tag=1))
    core.feed(
        method_frame(1, "basic.nack", delivery_tag=3) + method_frame(1, "basic.ack", delivery_tag=2)
    )
    assert events(core) == [("returned", channel), ("confirms", channel), ("confirms", channel)]
    ((message, text),) = channel.take_returns()
    assert (message.code, text, message.body) == (312, "NO_ROUTE", b"back")
    assert channel.take_returns() == []
    unconfirmed = channel.unconfirmed
    assert unconfirmed is not None
    assert (unconfirmed.count, unconfirmed.acked, unconfirmed.nacked) == (0, 2, 1)
    assert unconfirmed.refused == [3]
