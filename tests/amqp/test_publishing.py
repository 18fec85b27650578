"""Publishing: content of any size and shape, mandatory, confirms, transactions."""

import hashlib
import random
from itertools import pairwise
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.field_tables import Typed, encode_table
from tests.amqp.raw import Client

SIZES = [0, 1, 4095, 4096, 131_063, 131_064, 131_065, 131_072, 131_073, 1 << 20, 20 << 20]


def queue_of(client: Client, **fields: Any) -> str:
    """A new queue of this connection."""
    queue: str = client.call(1, "queue.declare", exclusive=True, **fields).queue
    return queue


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_it_gives_back_bodies_of_any_size(
    client: Client, name: str, size: int, durable: bool
) -> None:
    data = random.Random(size).randbytes(size)
    client.call(1, "confirm.select")
    client.call(1, "queue.declare", queue=name, durable=durable, auto_delete=True)
    client.publish(1, "", name, data, delivery_mode=2 if durable else 1)
    client.expect_confirms(1, 1)
    for take in ("get", "consume"):
        if take == "get":
            got = client.get(1, name)
            assert got is not None
        else:
            client.send_method(1, "basic.nack", delivery_tag=1, requeue=True)
            client.call(1, "basic.consume", queue=name)
            got = client.expect_message(channel=1)
            assert got.redelivered
        assert len(got.body) == size
        assert hashlib.sha256(got.body).digest() == hashlib.sha256(data).digest()


def test_it_joins_body_frames_of_any_sizes(client: Client) -> None:
    queue = queue_of(client)
    data = random.Random(1).randbytes(5000)
    cuts = [0, 1, 2, 2, 100, 101, 4096, 4999, 5000]
    frames = [raw.frame(raw.BODY, 1, data[start:end]) for start, end in pairwise(cuts)]
    client.send_method(1, "basic.publish", routing_key=queue)
    client.send(raw.header(1, len(data)))
    for part in frames:
        client.send(part)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.body == data


def test_it_takes_messages_of_several_channels_frame_by_frame(client: Client) -> None:
    client.call(2, "channel.open")
    queue = queue_of(client)
    client.send(
        raw.method(1, "basic.publish", routing_key=queue)
        + raw.method(2, "basic.publish", routing_key=queue)
        + raw.header(2, 6)
        + raw.header(1, 6)
        + raw.frame(raw.BODY, 1, b"one")
        + raw.frame(raw.BODY, 2, b"two")
        + raw.frame(raw.HEARTBEAT, 0, b"")
        + raw.frame(raw.BODY, 2, b"TWO")
        + raw.frame(raw.BODY, 1, b"ONE")
    )
    client.fence(2)
    bodies = [client.get(1, queue, no_ack=True) for _ in range(2)]
    assert sorted(got.body for got in bodies if got) == [b"oneONE", b"twoTWO"]


ALL_PROPERTIES = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"a": 1, "b": [True, None, {"c": 2.5}], "d": b"\x00\xff"},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c-1",
    "reply_to": "somewhere",
    "expiration": "60000000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "t",
    "user_id": "guest",
    "app_id": "app",
    "cluster_id": "cluster",
}


def test_it_gives_back_every_property(client: Client) -> None:
    queue = queue_of(client)
    values = {key: value for key, value in ALL_PROPERTIES.items() if key != "expiration"}
    client.publish(1, "", queue, b"x", **values)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.properties == values


@pytest.mark.parametrize("prop", [key for key in ALL_PROPERTIES if key != "expiration"])
def test_it_gives_back_each_property_alone(client: Client, prop: str) -> None:
    queue = queue_of(client)
    client.publish(1, "", queue, b"x", **{prop: ALL_PROPERTIES[prop]})
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.properties == {prop: ALL_PROPERTIES[prop]}


def test_it_gives_back_header_values_of_every_type(client: Client) -> None:
    queue = queue_of(client)
    values = {
        "t": True, "b": Typed("b", -128), "B": Typed("B", 255), "s": Typed("s", -32768),
        "u": Typed("u", 65535), "I": Typed("I", -(2**31)), "i": Typed("i", 2**32 - 1),
        "l": Typed("l", -(2**63)), "f": Typed("f", 0.5), "d": -1e300, "T": Typed("T", 2**40),
        "D": Typed("D", (2, 12345)), "S": "x" * 70000, "x": b"\x00" * 300, "A": [[[]], {}],
        "F": {"deep": {"deeper": {"deepest": [1]}}}, "V": None, "": "empty name",
    }  # fmt: skip
    client.publish(1, "", queue, b"x", headers=values)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    plain = {key: item.value if isinstance(item, Typed) else item for key, item in values.items()}
    assert got.properties["headers"] == plain


def test_it_keeps_a_header_table_to_the_byte(client: Client) -> None:
    queue = queue_of(client)
    table = encode_table({"z": 1, "a": Typed("s", 2), "Z": Typed("B", 3), "n": {"": []}})
    payload = b"\x00\x3c\x00\x00" + (1).to_bytes(8) + b"\x20\x00" + table
    client.send_method(1, "basic.publish", routing_key=queue)
    client.send(raw.frame(raw.HEADER, 1, payload) + raw.body(1, b"x"))
    client.send_method(1, "basic.get", queue=queue, no_ack=True)
    client.expect("basic.get-ok", 1)
    assert client.read_frame().payload == payload
    assert client.read_frame().payload == b"x"


@pytest.mark.parametrize("length", [0, 1, 127, 128, 254, 255])
def test_it_takes_short_strings_of_any_length(client: Client, length: int) -> None:
    topic = f"t-{length}"
    queue = queue_of(client)
    key = "k" * length
    client.call(1, "queue.bind", queue=queue, exchange="amq.direct", routing_key=key or topic)
    values = {"message_id": "m" * length, "correlation_id": "c" * length, "type": "t" * length}
    client.publish(1, "amq.direct", key or topic, b"x", **values)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.method.routing_key == key or topic
    assert got.properties == values


def test_it_keeps_the_order_of_one_channel(client: Client) -> None:
    queue = queue_of(client, durable=True)
    count = 2000
    client.send(
        b"".join(
            raw.publish(1, "", queue, str(number).encode(), delivery_mode=1 + number % 2)
            for number in range(count)
        )
    )
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    got = client.expect_messages(count, 1)
    assert [int(message.body) for message in got] == list(range(count))
    assert [message.tag for message in got] == list(range(1, count + 1))


def test_it_returns_what_is_mandatory_and_reaches_no_queue(client: Client, name: str) -> None:
    client.publish(1, "amq.topic", name, b"back", mandatory=True, message_id="m", headers={"a": 1})
    got = client.expect_message("basic.return", 1)
    assert got.method.fields == {
        "reply_code": 312,
        "reply_text": "NO_ROUTE",
        "exchange": "amq.topic",
        "routing_key": name,
    }
    assert got.properties == {"message_id": "m", "headers": {"a": 1}}
    assert got.body == b"back"


@pytest.mark.parametrize("size", [0, 131_065, 300_000])
def test_it_returns_bodies_of_any_size(client: Client, name: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    client.publish(1, "", name, data, mandatory=True)
    assert client.expect_message("basic.return", 1).body == data


def test_it_does_not_return_what_reaches_a_queue(client: Client) -> None:
    queue = queue_of(client)
    client.publish(1, "", queue, b"x", mandatory=True)
    client.fence(1)
    assert client.get(1, queue, no_ack=True) is not None


def test_it_returns_before_it_confirms(client: Client, name: str) -> None:
    client.call(1, "confirm.select")
    queue = queue_of(client)
    client.send(
        raw.publish(1, "", queue, b"1", mandatory=True)
        + raw.publish(1, "", name, b"2", mandatory=True)
        + raw.publish(1, "", queue, b"3", mandatory=True)
    )
    acked, returned = 0, False
    while acked < 3:
        got = client.read_method()
        if got.name == "basic.return":
            assert client.read_content(got).body == b"2"
            returned = True
        else:
            assert got.name == "basic.ack"
            assert got.delivery_tag != 2 or returned
            assert not (got.multiple and got.delivery_tag > 2) or returned
            acked = max(acked, got.delivery_tag) if got.multiple else acked + 1


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("durable", [False, True], ids=["to-transient", "to-durable"])
def test_it_confirms_every_message_once(client: Client, mode: int, durable: bool) -> None:
    client.call(1, "confirm.select")
    queue = queue_of(client, durable=durable)
    client.send(
        b"".join(raw.publish(1, "", queue, b"x" * 20, delivery_mode=mode) for _ in range(500))
    )
    assert set(client.expect_confirms(1, 500).values()) == {"basic.ack"}
    client.fence(1)
    client.publish(1, "", queue, b"later", delivery_mode=mode)
    client.expect_confirms(1, 501, first=501)


def test_it_confirms_each_channel_on_its_own(client: Client) -> None:
    client.call(2, "channel.open")
    client.call(1, "confirm.select")
    client.call(2, "confirm.select")
    queue = queue_of(client)
    client.publish(2, "", queue, b"x")
    assert client.expect("basic.ack", 2).delivery_tag == 1
    client.publish(1, "", queue, b"x")
    assert client.expect("basic.ack", 1).delivery_tag == 1


def test_it_counts_confirms_from_confirm_select(client: Client) -> None:
    queue = queue_of(client)
    client.publish(1, "", queue, b"before")
    client.call(1, "confirm.select")
    client.call(1, "confirm.select")
    client.publish(1, "", queue, b"after")
    assert client.expect("basic.ack", 1).delivery_tag == 1


def test_it_confirms_without_an_answer_to_select(client: Client) -> None:
    queue = queue_of(client)
    client.send_method(1, "confirm.select", nowait=True)
    client.publish(1, "", queue, b"x", delivery_mode=2)
    assert client.expect("basic.ack", 1).delivery_tag == 1


def test_a_transaction_publishes_at_its_commit(client: Client, other: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name, durable=True)
    client.call(1, "tx.select")
    for body in (b"1", b"2", b"3"):
        client.publish(1, "", name, body, delivery_mode=2)
    client.fence(1)
    assert other.get(1, name) is None
    client.call(1, "tx.commit")
    got = [other.get(1, name, no_ack=True) for _ in range(3)]
    assert [message.body for message in got if message] == [b"1", b"2", b"3"]
    other.call(1, "queue.delete", queue=name)


def test_a_transaction_rolled_back_leaves_nothing(client: Client, name: str) -> None:
    queue = queue_of(client)
    client.call(1, "tx.select")
    client.publish(1, "", queue, b"never")
    client.publish(1, "", name, b"never", mandatory=True)
    client.call(1, "tx.rollback")
    client.publish(1, "", queue, b"then")
    client.call(1, "tx.commit")
    got = client.get(1, queue)
    assert got is not None
    assert got.body == b"then"
    assert client.get(1, queue) is None


def test_a_transaction_holds_acknowledgements_back(
    client: Client, other: Client, name: str
) -> None:
    client.call(1, "queue.declare", queue=name)
    client.publish(1, "", name, b"1")
    client.publish(1, "", name, b"2")
    client.call(1, "tx.select")
    first, second = client.get(1, name), client.get(1, name)
    assert first is not None
    assert second is not None
    client.send_method(1, "basic.ack", delivery_tag=first.tag)
    client.call(1, "tx.rollback")
    client.send_method(1, "basic.ack", delivery_tag=first.tag)
    client.send_method(1, "basic.nack", delivery_tag=second.tag, requeue=True)
    client.fence(1)
    assert other.get(1, name) is None
    client.call(1, "tx.commit")
    got = other.get(1, name, no_ack=True)
    assert got is not None
    assert got.body == b"2"
    client.close()
    assert other.get(1, name) is None
    other.call(1, "queue.delete", queue=name)


def test_a_transaction_left_open_is_rolled_back(client: Client, other: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name)
    client.call(1, "tx.select")
    client.publish(1, "", name, b"never")
    client.call(1, "channel.close")
    assert other.get(1, name) is None
    other.call(1, "queue.delete", queue=name)


def test_a_transaction_returns_at_its_commit(client: Client, name: str) -> None:
    client.call(1, "tx.select")
    client.publish(1, "", name, b"back", mandatory=True)
    client.fence(1)
    client.send_method(1, "tx.commit")
    assert client.expect_message("basic.return", 1).body == b"back"
    client.expect("tx.commit-ok", 1)


def test_nothing_is_confirmed_behind_the_close_of_a_connection(
    client: Client, other: Client, name: str
) -> None:
    """What is safe by then is told before it; what is not, in no case behind it."""
    client.call(1, "confirm.select")
    client.call(1, "queue.declare", queue=name, durable=True)
    # No queue takes the first, so it is confirmed at once; the second waits for the disk. The
    # frame behind them is one too many.
    publishes = [
        raw.method(1, "basic.publish", routing_key=key) + raw.content(1, b"x", {"delivery_mode": 2})
        for key in ("nobody", name)
    ]
    client.send(b"".join(publishes) + raw.frame(raw.BODY, 1, b""))
    client.expect("basic.ack", 1, delivery_tag=1, multiple=False)
    client.expect("connection.close", 0, reply_code=505)
    other.call(1, "confirm.select")
    other.publish(1, "", name, b"x", delivery_mode=2)
    other.expect_confirms(1, 1)
    client.send_method(0, "connection.close-ok")
    client.expect_end()
    assert other.call(1, "queue.delete", queue=name).message_count == 2


def test_what_a_client_published_before_it_closed_is_confirmed_before_close_ok(
    client: Client, name: str
) -> None:
    client.call(1, "queue.declare", queue=name, durable=True)
    client.call(1, "confirm.select")
    publishes = raw.publish(1, "", name, b"x", delivery_mode=2) * 3
    client.send(
        publishes
        + raw.method(0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    )
    confirmed = 0
    while (told := client.read_method()).name != "connection.close-ok":
        assert told.name == "basic.ack"
        confirmed = told.delivery_tag
    assert confirmed == 3


@pytest.mark.parametrize("consumes", [False, True])
def test_what_is_safe_is_confirmed_before_the_close_ok_of_a_channel(
    client: Client, name: str, consumes: bool
) -> None:
    client.call(1, "queue.declare", queue=name)
    client.call(1, "queue.declare", queue=f"{name}-other")
    if consumes:
        client.call(1, "basic.consume", queue=f"{name}-other")
    client.call(1, "confirm.select")
    close = raw.method(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    client.send(raw.publish(1, "", name, b"x") * 3 + close)
    confirmed = 0
    while (told := client.read_method()).name != "channel.close-ok":
        assert told.name == "basic.ack"
        confirmed = told.delivery_tag
    assert confirmed == 3


def test_what_was_published_before_a_fault_is_confirmed_before_the_channel_closes(
    client: Client, name: str
) -> None:
    client.call(1, "queue.declare", queue=name)
    client.call(1, "confirm.select")
    client.send(raw.publish(1, "", name, b"x") * 3 + raw.publish(1, "nowhere", name, b"x"))
    confirmed = 0
    while (told := client.read_method()).name != "channel.close":
        assert told.name == "basic.ack"
        confirmed = told.delivery_tag
    assert (confirmed, told.reply_code) == (3, 404)
