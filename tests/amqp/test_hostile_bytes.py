"""Bytes as no good client sends them: cut, split, flipped, out of place. The broker answers with a
close or ends the connection; it never hangs, and it never minds afterwards."""

import random
import struct
from collections.abc import Iterator

import pytest

from tests.amqp import raw
from tests.amqp.field_tables import encode_longstr
from tests.amqp.raw import Client, ConnectionEndedError

Address = tuple[str, int]


@pytest.fixture(autouse=True)
def lives_on(amqp_address: Address) -> Iterator[None]:
    """After each test a new client must find the broker at work."""
    yield
    with Client.open(amqp_address) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        client.publish(1, "", queue, b"still here")
        got = client.get(1, queue, no_ack=True)
        assert got is not None
        client.close()


def exchange(name: str) -> bytes:
    """About 300 octets that a client sends in a session, after the protocol header."""
    return (
        raw.start_ok()
        + raw.method(0, "connection.tune-ok", channel_max=9, frame_max=4096, heartbeat=0)
        + raw.method(0, "connection.open", virtual_host="/")
        + raw.method(1, "channel.open")
        + raw.method(1, "queue.declare", queue=name, exclusive=True)
        + raw.publish(1, "", name, b"body", headers={"a": 1}, delivery_mode=2)
        + raw.method(1, "basic.qos", prefetch_count=10)
        + raw.method(1, "confirm.select")
        + raw.method(1, "basic.get", queue=name, no_ack=True)
        + raw.method(0, "connection.close", reply_code=200)
    )


def answers(client: Client) -> None:
    """The answers to `exchange`."""
    for name in ("start", "tune", "open-ok"):
        client.expect(f"connection.{name}", 0)
    client.expect("channel.open-ok", 1)
    client.expect("queue.declare-ok", 1)
    client.expect("basic.qos-ok", 1)
    client.expect("confirm.select-ok", 1)
    got = client.expect_message("basic.get-ok", 1)
    assert (got.body, got.properties) == (b"body", {"headers": {"a": 1}, "delivery_mode": 2})
    client.expect("connection.close-ok", 0)


def test_it_answers_the_same_at_every_split(amqp_address: Address) -> None:
    whole = raw.PROTOCOL_HEADER + exchange("split-000")
    assert len(whole) > 270
    for at in range(1, len(whole)):
        data = raw.PROTOCOL_HEADER + exchange(f"split-{at:03}")
        with Client(amqp_address) as client:
            client.send(data[:at])
            if at >= len(raw.PROTOCOL_HEADER):
                client.expect("connection.start", 0)
                client.send(data[at:])
                for name in ("tune", "open-ok"):
                    client.expect(f"connection.{name}", 0)
                client.expect("channel.open-ok", 1)
                client.expect("queue.declare-ok", 1)
                client.expect("basic.qos-ok", 1)
                client.expect("confirm.select-ok", 1)
                assert client.expect_message("basic.get-ok", 1).body == b"body"
                client.expect("connection.close-ok", 0)
            else:
                client.send(data[at:])
                answers(client)


def test_it_answers_the_same_one_octet_at_a_time(amqp_address: Address) -> None:
    with Client(amqp_address) as client:
        for octet in raw.PROTOCOL_HEADER + exchange("octets"):
            client.send(bytes([octet]))
        answers(client)


@pytest.mark.parametrize("count", [1, 8])
def test_a_publish_cut_anywhere_stores_nothing(
    client: Client, amqp_address: Address, name: str, count: int
) -> None:
    client.call(1, "exchange.declare", exchange=name, type="fanout")
    queues = [f"{name}-{number}" for number in range(count)]
    for queue in queues:
        client.call(1, "queue.declare", queue=queue)
        client.call(1, "queue.bind", queue=queue, exchange=name)
    data = raw.publish(1, name, "k", b"never whole", delivery_mode=2, headers={"a": "b"})
    for at in range(1, len(data)):
        with Client.open(amqp_address) as publisher:
            publisher.send(data[:at])
            if at % 2:
                publisher.reset()
            else:
                publisher.end_sending()
                publisher.read_to_end()
    for queue in queues:
        assert client.get(1, queue) is None
        client.call(1, "queue.delete", queue=queue)


def settled(client: Client) -> None:
    """Ends our half and reads to the end, which must come before the timeout."""
    client.end_sending()
    client.read_to_end()


@pytest.mark.parametrize("seed", range(8))
def test_it_survives_flipped_bits(amqp_address: Address, seed: int) -> None:
    chance = random.Random(seed)
    good = (
        raw.method(1, "queue.declare", queue=f"flip-{seed}", exclusive=True, arguments={"x-a": 1})
        + raw.publish(1, "amq.topic", "a.b", b"body" * 20, headers={"a": [1, {"b": "c"}]})
        + raw.method(1, "basic.consume", queue=f"flip-{seed}", arguments={"x-b": True})
        + raw.method(1, "basic.ack", multiple=True)
        + raw.method(1, "queue.bind", queue=f"flip-{seed}", exchange="amq.headers")
    )
    for _ in range(60):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with Client.open(amqp_address, timeout=30) as client:
            client.send(bytes(data))
            settled(client)


LENGTHS = [0, 1, 3, 4, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


@pytest.mark.parametrize("length", [*LENGTHS, 131064, 131065, 131072])
@pytest.mark.parametrize("type_", [1, 2, 3])
def test_it_survives_frames_of_any_announced_length(
    amqp_address: Address, length: int, type_: int
) -> None:
    with Client.open(amqp_address, timeout=30) as client:
        client.send(struct.pack(">BHI", type_, 1, length) + b"\x00\x3c\x00\x28" * 8 + b"\xce")
        settled(client)


@pytest.mark.parametrize("length", LENGTHS)
def test_it_survives_tables_and_strings_of_any_announced_length(
    amqp_address: Address, length: int
) -> None:
    announced = struct.pack(">I", length)
    cases = [
        raw.raw_method(1, 50, 10, b"\0\0\x01q\x02" + announced + b"\x01aI\0\0\0\x01"),
        raw.raw_method(1, 50, 10, b"\0\0\x01q\x02\0\0\0\x0f\x01aS" + announced + b"abcdefgh"),
        raw.raw_method(1, 50, 10, b"\0\0\x01q\x02\0\0\0\x0f\x01aA" + announced + b"abcdefgh"),
        raw.raw_method(1, 50, 10, b"\0\0\x01q\x02\0\0\0\x0f\x01aF" + announced + b"abcdefgh"),
        raw.raw_method(1, 50, 10, b"\0\0\x01q\x02\0\0\0\x0f\x01ax" + announced + b"abcdefgh"),
        raw.raw_method(0, 10, 70, announced + b"secret\x00"),
    ]
    for data in cases:
        with Client.open(amqp_address, timeout=30) as client:
            client.send(data)
            settled(client)


@pytest.mark.parametrize("letter", [bytes([code]) for code in range(0, 256, 5)], ids=repr)
def test_it_survives_every_kind_of_field_letter(amqp_address: Address, letter: bytes) -> None:
    table = encode_longstr(b"\x01a" + letter + b"\x00\x00\x00\x00\x00\x00\x00\x01")
    with Client.open(amqp_address, timeout=30) as client:
        client.send(raw.raw_method(1, 50, 10, b"\0\0\x00\x04" + table))
        settled(client)


@pytest.mark.parametrize("depth", [8, 32, 33, 100, 20_000])
def test_it_survives_nested_tables(amqp_address: Address, depth: int) -> None:
    table = b""
    for _ in range(depth):
        table = b"\x01aF" + encode_longstr(table)
        if len(table) > 120_000:
            break
    with Client.open(amqp_address, timeout=30) as client:
        client.send(raw.raw_method(1, 50, 10, b"\0\0\x00\x04" + encode_longstr(table)))
        settled(client)
    with Client.open(amqp_address, timeout=30) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        payload = struct.pack(">HHQH", 60, 0, 0, 1 << 13) + encode_longstr(table)
        client.send_method(1, "basic.publish", routing_key=queue)
        client.send(raw.frame(raw.HEADER, 1, payload))
        settled(client)


def test_it_answers_every_frame_type(amqp_address: Address) -> None:
    for type_ in range(256):
        if type_ in (raw.METHOD, raw.HEADER, raw.BODY, raw.HEARTBEAT):
            continue
        with Client.open(amqp_address, channels=(), timeout=30) as client:
            client.send(raw.frame(type_, 0, b"abc"))
            assert client.expect("connection.close", 0).reply_code == 501


def test_it_survives_every_method_without_arguments(amqp_address: Address) -> None:
    for class_id in (0, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 100, 65535):
        for method_id in (0, *range(10, 130, 10), 11, 21, 31, 41, 51, 71, 72, 111, 65535):
            for channel in (0, 1):
                with Client.open(amqp_address, timeout=30) as client:
                    client.send(raw.raw_method(channel, class_id, method_id))
                    settled(client)


def test_it_survives_wrong_channels(amqp_address: Address) -> None:
    for channel in (0, 2, 255, 256, 2047, 2048, 65535):
        for data in (
            raw.method(channel, "basic.publish", routing_key="x") + raw.content(channel, b"x"),
            raw.header(channel, 3),
            raw.frame(raw.BODY, channel, b"x"),
            raw.method(channel, "channel.close-ok"),
            raw.method(channel, "basic.ack", delivery_tag=1),
        ):
            with Client.open(amqp_address, timeout=30) as client:
                client.send(data)
                settled(client)


def test_it_survives_every_wrong_end_octet(amqp_address: Address) -> None:
    good = raw.method(1, "basic.qos")
    for octet in range(0, 256, 3):
        if octet == raw.FRAME_END:
            continue
        with Client.open(amqp_address, timeout=30) as client:
            client.send(good[:-1] + bytes([octet]))
            assert client.expect("connection.close", 0).reply_code == 501


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + bytes(240),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00",
        b"A",
        b"AMQP",
        b"AMQP\x00\x00\x09",
        b"\xff" * 100_000,
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nAMQP\x00\x00\x09\x01",
        b"\r\n\r\n\x00\r\nQUIT\n!\x11\x00\x0c",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_it_survives_garbage_on_the_port(amqp_address: Address, data: bytes) -> None:
    with Client(amqp_address, timeout=30) as client:
        client.send(data)
        client.end_sending()
        got = client.read_to_end()
        assert got in (b"", raw.PROTOCOL_HEADER)


@pytest.mark.parametrize("seed", range(4))
def test_it_survives_random_bytes(amqp_address: Address, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        data = chance.randbytes(chance.randrange(1, 3000))
        with Client(amqp_address, timeout=30) as client:
            try:
                client.send(raw.PROTOCOL_HEADER + data)
                client.end_sending()
                client.read_to_end()
            except (BrokenPipeError, ConnectionResetError):
                pass
        with Client.open(amqp_address, timeout=30) as client:
            client.send(data)
            settled(client)


def test_a_start_ok_of_great_size_is_refused(amqp_address: Address) -> None:
    with Client(amqp_address, timeout=30) as client:
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        data = raw.start_ok(client_properties={"big": "x" * 200_000})
        with pytest.raises((ConnectionEndedError, AssertionError, OSError)):
            client.send(data)
            client.expect("connection.tune", 0)


def test_a_frame_above_the_maximum_is_refused_with_the_last_octet_of_its_size(
    amqp_address: tuple[str, int],
) -> None:
    too_large = struct.pack(">BHI", raw.BODY, 1, 131073)
    for cuts in ((7,), (6, 1), (3, 4), (1,) * 7):
        with Client.open(amqp_address) as client:
            at = 0
            for cut in cuts:
                client.send(too_large[at : at + cut])
                at += cut
            client.expect("connection.close", 0, reply_code=501, class_id=0, method_id=0)
    with Client.open(amqp_address) as client:
        # One of the largest size is waited for.
        client.send(struct.pack(">BHI", raw.HEARTBEAT, 0, 0))
        client.send(b"\xce" + raw.method(1, "basic.qos", prefetch_count=1))
        client.expect("basic.qos-ok", 1)
