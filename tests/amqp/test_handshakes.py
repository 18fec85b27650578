"""How a connection opens: mechanisms, what is negotiated, signs of life, the way out at each step.

Refusals that are told by a frame are rows of `tests/amqp/error_rows.py`; what strangers may take is
in `tests/listeners/test_limits.py`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.field_tables import encode_table
from tests.amqp.raw import Client

Address = tuple[str, int]


def amqplain(**values: Any) -> bytes:
    """The AMQPLAIN mechanism's response: a table without its length."""
    return encode_table(values)[4:]


def start_ok(mechanism: str, response: bytes, **capabilities: bool) -> bytes:
    return raw.method(
        0,
        "connection.start-ok",
        client_properties={"capabilities": capabilities},
        mechanism=mechanism,
        response=response,
        locale="en_US",
    )


# Mechanisms. Wrong passwords are those of strangers: `guest` is what other tests log in as.


def test_plain_passes_over_the_identity_to_act_for(amqp_address: Address) -> None:
    with Client.open(amqp_address, response=b"somebody\x00guest\x00guest") as client:
        client.fence(1)


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("AMQPLAIN", amqplain(LOGIN="amqplain-stranger", PASSWORD="wrong")),
        ("AMQPLAIN", amqplain(LOGIN="", PASSWORD="guest")),
        ("AMQPLAIN", amqplain(LOGIN="amqplain-stranger", PASSWORD="")),
        ("PLAIN", b"\x00plain-stranger\x00"),
        ("PLAIN", b"\x00\x00guest"),
        ("PLAIN", b"\x00\xff\xfe\x00guest"),
    ],
)
def test_a_refused_login_is_told(amqp_address: Address, mechanism: str, response: bytes) -> None:
    with Client(amqp_address) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(start_ok(mechanism, response, authentication_failure_close=True))
        client.expect_connection_close(
            403,
            0,
            0,
            f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}\\.",
        )


MALFORMED = {
    "plain-nothing": ("PLAIN", b""),
    "plain-two-parts": ("PLAIN", b"guest\x00guest"),
    "plain-four-parts": ("PLAIN", b"\x00guest\x00guest\x00"),
    "amqplain-nothing": ("AMQPLAIN", b""),
    "amqplain-no-table": ("AMQPLAIN", b"\x05LOGIN"),
    "amqplain-no-password": ("AMQPLAIN", amqplain(LOGIN="guest")),
    "amqplain-number": ("AMQPLAIN", amqplain(LOGIN=1, PASSWORD=2)),
    "lower-case": ("plain", raw.plain_response("guest", "guest")),
    "anonymous": ("ANONYMOUS", b""),
    "external-without-tls": ("EXTERNAL", b""),
    "wrong-password-untold": ("PLAIN", raw.plain_response("plain-stranger", "wrong")),
}


def test_what_is_no_login_ends_without_a_frame_and_late(amqp_address: Address) -> None:
    """All at once: each has to wait for three seconds."""
    clients = {}
    begun = time.monotonic()
    for case, (mechanism, response) in MALFORMED.items():
        # Only a refused login is told, and only to who announced that it understands.
        announced = case != "wrong-password-untold"
        client = clients[case] = Client(amqp_address)
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(start_ok(mechanism, response, authentication_failure_close=announced))
        # Who waits for the end is not read any more.
        client.send(start_ok("PLAIN", raw.plain_response("guest", "guest")))
    for client in clients.values():
        with client:
            client.expect_end()
            assert time.monotonic() - begun >= 2.9, "guessing is slow"


# What is negotiated.


@pytest.mark.parametrize("frame_max", [4096, 4097, 8192, 131071, 131072])
def test_it_takes_any_frame_size_up_to_its_own(amqp_address: Address, frame_max: int) -> None:
    with Client.open(amqp_address, frame_max=frame_max) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        client.publish(1, "", queue, bytes(200_000))
        got = client.get(1, queue, no_ack=True)
        assert got is not None and len(got.body) == 200_000


@pytest.mark.parametrize("channel_max", [1, 2046, 2047])
def test_it_takes_any_number_of_channels_up_to_its_own(
    amqp_address: Address, channel_max: int
) -> None:
    with Client.open(amqp_address, channel_max=channel_max) as client:
        client.fence(1)
        if channel_max == 1:
            client.send_method(2, "channel.open")
            client.expect_connection_close(530, 20, 10, r"negotiated channel_max \(1\)")


@pytest.mark.parametrize("heartbeat", [0, 1, 600, 65535])
def test_it_takes_the_heartbeat_that_the_client_wants(
    amqp_address: Address, heartbeat: int
) -> None:
    with Client.open(amqp_address, heartbeat=heartbeat) as client:
        client.fence(1)


def test_no_heartbeat_is_sent_where_none_was_wanted(amqp_address: Address) -> None:
    with Client.open(amqp_address, heartbeat=0) as silent:
        silent.keep_heartbeats = True
        with Client.open(amqp_address, heartbeat=1) as other:
            other.keep_heartbeats = True
            for _ in range(2):
                assert other.read_frame().type == raw.HEARTBEAT
        silent.fence(1)


# Signs of life.


def test_heartbeats_may_come_before_the_connection_is_open(amqp_address: Address) -> None:
    beat = raw.frame(raw.HEARTBEAT, 0, b"")
    with Client(amqp_address) as client:
        client.start(heartbeat=10)
        client.send(beat)
        client.send_method(0, "connection.open", virtual_host="/")
        client.expect("connection.open-ok", 0)
        client.send(beat)
        client.call(1, "channel.open")


def test_every_octet_is_a_sign_of_life(amqp_address: Address, name: str) -> None:
    """A slow frame takes longer than the heartbeat's patience, and its client is not dropped."""
    with Client.open(amqp_address, heartbeat=1) as client:
        client.keep_heartbeats = True
        data = raw.method(1, "queue.declare", queue=name[:16], exclusive=True)
        beats = 0
        for octet in data[:-1]:
            client.send(bytes([octet]))
            assert client.read_frame().type == raw.HEARTBEAT
            beats += 1
            if beats == 7:
                break
        client.send(data[beats:])
        client.keep_heartbeats = False
        client.expect("queue.declare-ok", 1)


def test_what_the_broker_sends_is_no_sign_of_the_client_s_life(
    amqp_address: Address, other: Client, name: str
) -> None:
    other.call(1, "queue.declare", queue=name, auto_delete=True)
    with Client.open(amqp_address, heartbeat=1) as consumer:
        consumer.call(1, "basic.consume", queue=name, no_ack=True)
        ended = False
        for _ in range(200):
            other.publish(1, "", name, b"x")
            try:
                consumer.expect_message()
            except (raw.ConnectionEndedError, OSError):
                ended = True
                break
            time.sleep(0.05)
        assert ended, "who only listens has to send heartbeats"


# The way out.


@pytest.mark.parametrize("step", ["start-ok", "tune-ok", "open"])
def test_a_client_may_leave_at_every_step(amqp_address: Address, step: str) -> None:
    with Client(amqp_address) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        if step != "start-ok":
            client.send(start_ok("PLAIN", raw.plain_response("guest", "guest")))
            client.expect("connection.tune", 0)
        if step == "open":
            client.send_method(0, "connection.tune-ok", channel_max=1, frame_max=4096, heartbeat=0)
        client.send_method(0, "connection.close", reply_code=200, reply_text="bye")
        client.expect("connection.close-ok", 0)
        client.expect_end()


@pytest.mark.parametrize("name", ["channel.open", "tx.select"])
def test_no_method_of_a_channel_comes_before_the_connection_is_open(
    amqp_address: Address, name: str
) -> None:
    with Client(amqp_address) as client:
        client.start()
        client.send_method(0, name)
        assert client.expect("connection.close", 0).reply_code == 504


@pytest.mark.parametrize("channel", [1, 65535])
def test_no_other_channel_is_used_before_the_connection_is_open(
    amqp_address: Address, channel: int
) -> None:
    with Client(amqp_address) as client:
        client.start()
        client.send_method(channel, "channel.open")
        assert client.expect("connection.close", 0).reply_code == 504


@pytest.mark.parametrize("step", ["connection.start-ok", "connection.tune-ok"])
def test_no_step_is_taken_twice(amqp_address: Address, step: str) -> None:
    fields: dict[str, Any] = {"channel_max": 1, "frame_max": 4096, "heartbeat": 0}
    with Client(amqp_address) as client:
        client.start()
        if step.endswith("start-ok"):
            fields = {"mechanism": "PLAIN", "response": b"", "locale": "en_US"}
        client.send_method(0, step, **fields)
        assert client.expect("connection.close", 0).reply_code == 504


def test_it_offers_exactly_what_it_carries_out(amqp_address: Address) -> None:
    with Client.open(amqp_address) as client:
        capabilities = client.server_properties["capabilities"]
        assert set(capabilities) == {
            "authentication_failure_close",
            "basic.nack",
            "confirm_on_ack",
            "connection.blocked",
            "consumer_cancel_notify",
            "consumer_priorities",
            "direct_reply_to",
            "exchange_exchange_bindings",
            "per_consumer_qos",
            "publisher_confirms",
        }
        assert all(value is True for value in capabilities.values())
