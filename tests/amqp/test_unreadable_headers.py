"""Headers that do not add up: refused when they are published, and no reason to stop a queue when
they are there all the same."""

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.field_tables import Typed
from tests.amqp.raw import Client, Message
from tests.appliance import Appliance
from tests.control.test_real_broker import control
from tests.oracles import segment_files

HEADERS = 1 << 13
DEPTH_MAX, VALUES_MAX = 32, 64_512
GOOD = b"\x05spoilS\x00\x00\x00\x01x"
"""A field that `spoil` turns into one that nobody can read."""
BAD = GOOD.replace(b"S", b"Z")


def declare_with_letters(client: Client, name: str) -> None:
    """A queue, and one for its dead letters."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    client.call(1, "queue.declare", queue=f"{name}-dead")
    client.call(1, "queue.declare", queue=name, arguments=letters)


def both_rejected(client: Client, name: str) -> list[Message]:
    """Rejects the queue's two messages: the dead letters."""
    for _ in range(2):
        got = client.get(1, name)
        assert got is not None
        client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    client.call(1, "basic.consume", queue=f"{name}-dead", no_ack=True)
    return client.expect_messages(2, channel=1)


def nested(depth: int) -> bytes:
    """A field whose value is `depth` arrays deep, the innermost empty."""
    value = b""
    for _ in range(depth):
        value = b"A" + struct.pack(">I", len(value)) + value
    return b"\x01n" + value


def voids(count: int) -> bytes:
    """A field whose value, an array, makes `count` values with those in it."""
    return b"\x01vA" + struct.pack(">I", count - 1) + b"V" * (count - 1)


def publish(queue: str, fields: bytes, body: bytes = b"x") -> bytes:
    """A publish whose header table has these fields."""
    listed = struct.pack(">HI", HEADERS, len(fields)) + fields
    return (
        raw.method(1, "basic.publish", exchange="", routing_key=queue)
        + raw.frame(2, 1, struct.pack(">HHQ", 60, 0, len(body)) + listed)
        + raw.body(1, body)
    )


def take(client: Client, queue: str) -> tuple[int, bytes, bytes]:
    """Delivery tag, properties as they stand, and body of the next message."""
    tag: int = client.call(1, "basic.get", queue=queue).delivery_tag
    return tag, client.read_frame().payload[12:], client.read_frame().payload


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(b"\x03abcZ", id="a type that is none"),
        pytest.param(b"\xffab", id="a name that does not end"),
        pytest.param(b"\x01a", id="a name without a value"),
        pytest.param(b"\x01aI\x00\x00", id="a number cut short"),
        pytest.param(b"\x01aS\x00\x00\x00\x02x", id="a text longer than the table"),
        pytest.param(b"\x01aF\x00\x00\x00\x03\x01bS", id="a table within that is cut short"),
        pytest.param(b"\x01aA\x00\x00\x00\x02VZ", id="a list with a type that is none"),
        pytest.param(nested(DEPTH_MAX + 1), id="too deep"),
        pytest.param(voids(VALUES_MAX + 1), id="too many values"),
    ],
)
@pytest.mark.parametrize("is_transacted", [False, True], ids=["published", "transacted"])
def test_it_refuses_headers_that_cannot_be_read(
    client: Client, name: str, fields: bytes, is_transacted: bool
) -> None:
    client.call(1, "queue.declare", queue=name)
    if is_transacted:
        client.call(1, "tx.select")
    client.send(publish(name, fields))
    closed = client.expect_connection_close(501, 60, 40)
    assert closed.reply_text.startswith("FRAME_ERROR - cannot decode")


@pytest.mark.parametrize("fields", [b"", nested(DEPTH_MAX), voids(VALUES_MAX)], ids=len)
def test_it_takes_headers_up_to_its_limits(client: Client, name: str, fields: bytes) -> None:
    client.call(1, "queue.declare", queue=name)
    client.send(publish(name, fields))
    _, listed, body = take(client, name)
    assert listed == struct.pack(">HI", HEADERS, len(fields)) + fields
    assert body == b"x"


@pytest.mark.parametrize("count", [Typed("l", 2**63 - 1), Typed("T", 2**64 - 1)], ids=["l", "T"])
def test_no_count_of_deaths_keeps_a_letter_and_those_behind_it(
    client: Client, name: str, count: Typed
) -> None:
    declare_with_letters(client, name)
    death = {"queue": name, "reason": "rejected", "count": count}
    client.publish(1, "", name, b"bad", headers={"x-death": [death, death]})
    client.publish(1, "", name, b"good")
    bad, good = both_rejected(client, name)
    assert (bad.body, good.body) == (b"bad", b"good")
    told = [death["count"] for death in bad.properties["headers"]["x-death"]]
    # Deaths of one queue for one reason are one.
    assert told == [2**63 - 1]


def test_full_headers_have_room_for_another_death(client: Client, name: str) -> None:
    declare_with_letters(client, name)
    # A list of one table of one list: three values, and those in it.
    headers = {"x-death": [{"v": [None] * (VALUES_MAX - 3)}]}
    client.publish(1, "", name, b"full", headers=headers, expiration="3600000")
    client.publish(1, "", name, b"good")
    full, good = both_rejected(client, name)
    assert (full.body, good.body) == (b"full", b"good")
    # Its expiration is gone, too.
    assert list(full.properties) == ["headers"]
    first, second = full.properties["headers"]["x-death"]
    assert (first["queue"], first["reason"]) == (name, "rejected")
    assert second == headers["x-death"][0]


def spoil(data_dir: Path) -> int:
    """Makes the fields GOOD of all messages on disk unreadable, as a broker may have left them
    that did not look at headers. Returns how many."""
    spoilt = 0
    for path in data_dir.rglob("msgs.*"):
        incarnation, number = int(path.parent.name, 16), int(path.suffix[1:])
        data = bytearray(path.read_bytes())
        for record in segment_files.records(bytes(data), incarnation, number):
            properties = record.properties.replace(GOOD, BAD)
            if properties != record.properties:
                other = dataclasses.replace(record, properties=properties)
                end = record.position + record.bytes
                data[record.position : end] = other.encode(incarnation, number)
                spoilt += 1
        path.write_bytes(data)
    return spoilt


async def test_messages_on_disk_with_unreadable_headers_go_their_way(
    make_broker: Callable[..., Appliance],
) -> None:
    broker = make_broker()
    queues: dict[str, dict[str, Any]] = {
        "dying": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        "returned": {"x-queue-type": "quorum"},
        "looked-at": {},
        "due": {},
        "dead": {},
    }
    with Client.open((broker.host, broker.amqp_port)) as client:
        for queue, arguments in queues.items():
            client.call(1, "queue.declare", queue=queue, durable=True, arguments=arguments)
        client.call(
            1, "exchange.declare", exchange="later", type="x-delayed-message", durable=True,
            arguments={"x-delayed-type": "fanout"},
        )  # fmt: skip
        client.call(1, "queue.bind", queue="due", exchange="later")
        client.call(1, "confirm.select")
        for queue in ("dying", "returned", "looked-at"):
            client.publish(
                1, "", queue, b"bad", delivery_mode=2, headers={"spoil": "x"}, expiration="3600000"
            )
            client.publish(1, "", queue, b"good", delivery_mode=2)
        for body in (b"bad", b"good"):
            # Longer than it takes until the broker is stopped.
            headers: dict[str, Any] = {"x-delay": 2000}
            if body == b"bad":
                headers["spoil"] = "x"
            client.publish(1, "later", "", body, delivery_mode=2, headers=headers)
        client.expect_confirms(1, 8)
    broker.stop()
    assert spoil(broker.data_dir) == 4
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        for _ in range(2):
            tag, _, _ = take(client, "dying")
            client.send_method(1, "basic.reject", delivery_tag=tag, requeue=False)
        client.fence(1)
        _, listed, body = take(client, "dead")
        assert BAD in listed
        # A letter does not expire again, whatever else is on it.
        assert b"3600000" not in listed
        assert (body, take(client, "dead")[2]) == (b"bad", b"good")

        tag, before, _ = take(client, "returned")
        client.send_method(1, "basic.nack", delivery_tag=tag, requeue=True)
        _, again, body = take(client, "returned")
        assert (body, again) == (b"bad", before)
        assert take(client, "returned")[2] == b"good"

        async with control(broker) as door:
            where = {"vhost": "/", "name": "looked-at"}
            shown = await door.call("queue.get", **where, count=3)
            assert [row["payload"] for row in shown] == [b"bad", b"good"]
            assert shown[0]["properties"] == {"delivery_mode": 2, "expiration": "3600000"}
            row = await door.call("item", noun="queues", **where)
            assert (row["messages_ready"], row["messages_unacknowledged"]) == (2, 0)

        client.call(1, "basic.consume", queue="due", no_ack=True)
        for body in (b"bad", b"good"):
            client.expect("basic.deliver", 1)
            assert (BAD in client.read_frame().payload) == (body == b"bad")
            assert client.read_frame().payload == body
