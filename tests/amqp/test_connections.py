"""The handshake, channels, heartbeats and the ends of connections."""

import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from broker.kernel.contracts import Topology
from broker.wire.channel import Channel
from tests.amqp import raw
from tests.amqp.field_tables import encode_table
from tests.amqp.raw import Client, ConnectionEndedError
from tests.amqp.wired import Wired
from tests.promptness import came_within, in_time

Address = tuple[str, int]


def test_it_offers_what_clients_expect(amqp_address: Address) -> None:
    with Client.open(amqp_address) as client:
        assert client.tune is not None
        assert client.tune.fields == {"channel_max": 2047, "frame_max": 131072, "heartbeat": 60}
        properties = client.server_properties
        assert {"capabilities", "product", "version", "platform"} <= set(properties)
        assert {
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "consumer_priorities",
            "authentication_failure_close",
            "per_consumer_qos",
            "direct_reply_to",
        } <= {name for name, on in properties["capabilities"].items() if on is True}


def test_it_offers_plain_and_en_us(amqp_address: Address) -> None:
    with Client(amqp_address) as client:
        client.send(raw.PROTOCOL_HEADER)
        start = client.expect("connection.start", 0)
        assert b"PLAIN" in start.mechanisms.split()
        assert b"en_US" in start.locales.split()


def test_it_logs_in_with_amqplain(amqp_address: Address) -> None:
    response = encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    with Client.open(amqp_address, mechanism="AMQPLAIN", response=response) as client:
        client.fence(1)


def test_it_takes_a_whole_session_in_one_packet(amqp_address: Address, name: str) -> None:
    with Client(amqp_address) as client:
        client.send(
            raw.PROTOCOL_HEADER
            + raw.start_ok()
            + raw.method(0, "connection.tune-ok", channel_max=100, frame_max=131072, heartbeat=0)
            + raw.method(0, "connection.open", virtual_host="/")
            + raw.method(1, "channel.open")
            + raw.method(1, "queue.declare", queue=name, exclusive=True)
            + raw.publish(1, "", name, b"one")
            + raw.method(1, "basic.get", queue=name, no_ack=True)
        )
        for due in (
            "connection.start",
            "connection.tune",
            "connection.open-ok",
            "channel.open-ok",
            "queue.declare-ok",
        ):
            client.expect(due)
        assert client.expect_message("basic.get-ok", 1).body == b"one"


def test_it_closes_a_connection_when_asked(amqp_address: Address) -> None:
    with Client.open(amqp_address) as client:
        client.send_method(0, "connection.close", reply_code=200, reply_text="bye")
        client.expect("connection.close-ok", 0)
        client.end_sending()
        client.expect_end()


def test_it_closes_a_channel_and_opens_its_number_again(client: Client) -> None:
    client.call(1, "channel.close", reply_code=200, reply_text="bye")
    client.call(1, "channel.open")
    client.fence(1)


def test_it_keeps_the_channels_of_a_connection_apart(client: Client, name: str) -> None:
    client.call(2, "channel.open")
    client.send_method(1, "queue.declare", queue=name, passive=True)
    client.expect_channel_close(1, 404, 50, 10)
    client.fence(2)


def test_it_ignores_what_follows_a_soft_error_until_close_ok(client: Client, name: str) -> None:
    client.send(
        raw.method(1, "queue.declare", queue=name, passive=True)
        + raw.method(1, "queue.declare", queue=f"{name}-ignored")
        + raw.publish(1, "", "nowhere", b"ignored")
        + raw.method(1, "tx.commit")
    )
    client.expect_channel_close(1, 404, 50, 10)
    client.call(1, "channel.open")
    client.send_method(1, "queue.declare", queue=f"{name}-ignored", passive=True)
    client.expect_channel_close(1, 404, 50, 10)


def test_it_answers_a_close_that_crosses_its_own(client: Client, name: str) -> None:
    client.send(
        raw.method(1, "queue.declare", queue=name, passive=True)
        + raw.method(1, "channel.close", reply_code=200)
    )
    client.expect("channel.close", 1)
    client.expect("channel.close-ok", 1)
    client.send_method(1, "channel.close-ok")
    client.call(1, "channel.open")


def test_it_ignores_other_methods_after_connection_close(client: Client, name: str) -> None:
    client.send(
        raw.method(0, "connection.close", reply_code=200)
        + raw.method(1, "queue.declare", queue=name)
    )
    client.expect("connection.close-ok", 0)
    client.end_sending()
    client.expect_end()


def test_it_cuts_long_reply_texts_to_a_short_string(client: Client) -> None:
    client.send_method(1, "queue.declare", queue="é" * 127, passive=True)
    got = client.expect("channel.close", 1)
    assert got.reply_code == 404
    assert len(got.reply_text.encode()) <= 255


def test_it_opens_many_channels(client: Client) -> None:
    numbers = range(2, 257)
    client.send(b"".join(raw.method(number, "channel.open") for number in numbers))
    for number in numbers:
        client.expect("channel.open-ok", number)
    client.fence(256)


def test_it_opens_a_channel_of_any_number_for_the_room_of_one(tmp_path: Path) -> None:
    wired = Wired(tmp_path)
    channel = Channel(
        wired.wire,
        wired.wire.output,
        65535,
        wired.driven.persister,
        Topology(),
    )
    tracemalloc.start()
    try:
        wired.wire.put_channel(channel)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
    assert wired.wire.find_channel(65535) is channel
    assert wired.wire.find_channel(65534) is None
    assert wired.wire.channels == {1: wired.channel, 65535: channel}
    wired.wire.drop_channel(channel)
    assert wired.wire.channel_count == 1
    assert wired.wire.find_channel(65535) is None
    wired.stop()


def test_it_serves_a_channel_with_a_high_number(client: Client, name: str) -> None:
    for _ in range(2):
        client.call(65535, "channel.open")
        client.call(65535, "queue.declare", queue=name, exclusive=True)
        client.call(65535, "basic.consume", queue=name)
        client.publish(65535, "", name, b"high" * 200_000)
        message = client.expect_message(channel=65535)
        assert message.body == b"high" * 200_000
        client.send_method(65535, "basic.ack", delivery_tag=message.tag)
        client.call(65535, "channel.close")


@in_time
def test_it_sends_heartbeats_while_idle(amqp_address: Address) -> None:
    with Client.open(amqp_address, heartbeat=1) as client:
        client.keep_heartbeats = True
        started = time.monotonic()
        got = client.read_frame()
        assert (got.type, got.channel, got.payload) == (raw.HEARTBEAT, 0, b"")
        came_within(started, 0, 1.5)


@in_time
def test_it_drops_a_client_that_falls_silent(amqp_address: Address) -> None:
    with Client.open(amqp_address, heartbeat=1) as client:
        started = time.monotonic()
        with pytest.raises(ConnectionEndedError):
            client.read_frame()
        came_within(started, 1.5, 9)


@in_time
def test_it_keeps_a_client_that_only_sends_heartbeats(amqp_address: Address) -> None:
    with Client.open(amqp_address, heartbeat=1) as client:
        client.keep_heartbeats = True
        began = sent = time.monotonic()
        while sent < began + 3.5:
            client.send(raw.frame(raw.HEARTBEAT, 0, b""))
            try:
                assert client.read_frame().type == raw.HEARTBEAT
            except (ConnectionEndedError, OSError):
                came_within(sent, 0, 1.5)
                raise
            sent = time.monotonic()
        client.keep_heartbeats = False
        client.fence(1)


def test_it_splits_bodies_to_the_negotiated_frame_size(amqp_address: Address, name: str) -> None:
    with Client.open(amqp_address, frame_max=4096) as client:
        client.call(1, "queue.declare", queue=name, exclusive=True)
        client.publish(1, "", name, bytes(range(256)) * 64)
        got = client.get(1, name, no_ack=True)
        assert got is not None
        assert got.body == bytes(range(256)) * 64


def test_it_delivers_headers_that_no_frame_of_the_consumer_has_room_for(
    amqp_address: Address, client: Client, name: str
) -> None:
    """A content header cannot be split; RabbitMQ sends such a frame, too."""
    headers = {"long": "x" * 10_000}
    with Client.open(amqp_address, frame_max=4096) as small:
        client.call(1, "queue.declare", queue=name)
        small.call(1, "basic.consume", queue=name)
        client.publish(1, "", name, b"y" * 10_000, headers=headers)
        got = small.expect_message(channel=1)
        assert (got.properties, got.body) == ({"headers": headers}, b"y" * 10_000)
    client.call(1, "queue.delete", queue=name)


def test_it_takes_a_frame_whose_payload_alone_fills_the_negotiated_size(
    amqp_address: Address, name: str
) -> None:
    with Client.open(amqp_address, frame_max=4096) as client:
        client.call(1, "queue.declare", queue=name, exclusive=True)
        client.send(raw.method(1, "basic.publish", routing_key=name) + raw.header(1, 4096))
        client.send(raw.frame(raw.BODY, 1, bytes(4096)))
        got = client.get(1, name, no_ack=True)
        assert got is not None
        assert got.body == bytes(4096)


def test_it_refuses_a_frame_one_octet_over_the_negotiated_size(
    amqp_address: Address, name: str
) -> None:
    with Client.open(amqp_address, frame_max=4096) as client:
        client.send(raw.method(1, "basic.publish", routing_key=name) + raw.header(1, 5000))
        client.send(struct.pack(">BHI", 3, 1, 4097) + bytes(4097) + b"\xce")
        got = client.expect("connection.close", 0)
        assert got.reply_code == 501
