"""Large bodies that several queues get: each arrives whole, wherever its message goes."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.test_exchanges import Topology
from tests.appliance import Appliance

SIZES = (4095, 4096, 20_000, 131_073)


def made(number: int, size: int) -> bytes:
    return number.to_bytes(4) + bytes([number % 251]) * (size - 4)


def fanned_out(client: Client, queues: int, **arguments: Any) -> tuple[str, list[str]]:
    """A durable fanout exchange with new durable queues; the first has the arguments."""
    exchange = f"fan-{uuid.uuid4().hex[:8]}"
    client.call(1, "exchange.declare", exchange=exchange, type="fanout", durable=True)
    names = [f"{exchange}-{number}" for number in range(queues)]
    for name in names:
        client.call(1, "queue.declare", queue=name, durable=True, arguments=arguments)
        client.call(1, "queue.bind", queue=name, exchange=exchange)
        arguments = {}
    return exchange, names


def deleted(client: Client, exchange: str, queues: list[str]) -> None:
    # Consumers end with their channel.
    client.call(1, "channel.close")
    client.call(1, "channel.open")
    client.call(1, "exchange.delete", exchange=exchange)
    for queue in queues:
        client.call(1, "queue.delete", queue=queue)


@pytest.mark.parametrize("size", SIZES)
def test_every_queue_gets_the_whole_body(client: Client, size: int) -> None:
    exchange, queues = fanned_out(client, 3)
    client.call(1, "confirm.select")
    data = b"".join(
        raw.publish(1, exchange, "k", made(number, size), delivery_mode=2, priority=number % 7)
        for number in range(20)
    )
    client.send(data)
    client.expect_confirms(1, 20)
    for queue in queues:
        client.call(1, "basic.consume", queue=queue, no_ack=True)
        messages = client.expect_messages(20, 1)
        assert [message.body for message in messages] == [made(n, size) for n in range(20)]
        assert [message.properties["priority"] for message in messages] == [
            number % 7 for number in range(20)
        ]
    deleted(client, exchange, queues)


def test_each_message_is_confirmed_once_even_if_its_body_is_never_written(
    client: Client, other: Client
) -> None:
    exchange, queues = fanned_out(client, 2)
    for queue in queues:
        other.call(1, "basic.consume", queue=queue, no_ack=True)
    client.call(1, "confirm.select")
    for number in range(50):
        client.publish(1, exchange, "", made(number, 8000), delivery_mode=2)
    assert set(client.expect_confirms(1, 50)) == set(range(1, 51))
    client.fence(1)
    got = [message.body for message in other.expect_messages(100, 1)]
    assert sorted(got) == sorted(made(number, 8000) for number in range(50) for _ in queues)
    deleted(client, exchange, queues)


def test_a_transaction_shares_too(client: Client) -> None:
    exchange, queues = fanned_out(client, 2)
    client.call(1, "tx.select")
    client.publish(1, exchange, "", made(1, 9000), delivery_mode=2)
    client.publish(1, exchange, "", made(2, 9000), delivery_mode=2)
    client.call(1, "tx.commit")
    for queue in queues:
        got = [client.get(1, queue, no_ack=True) for _ in range(2)]
        assert [each and each.body for each in got] == [made(1, 9000), made(2, 9000)]
    deleted(client, exchange, queues)


@pytest.mark.parametrize("arguments", [{"x-max-priority": 3}, {"x-queue-type": "stream"}])
def test_queues_of_other_types_share_or_embed(client: Client, arguments: dict[str, Any]) -> None:
    exchange, queues = fanned_out(client, 3, **arguments)
    for number in range(6):
        client.publish(1, exchange, "", made(number, 6000), delivery_mode=2, priority=number % 2)
    client.call(1, "basic.qos", prefetch_count=100)
    client.call(
        1, "basic.consume", queue=queues[0], consumer_tag="c", arguments=first_of(arguments)
    )
    order = [1, 3, 5, 0, 2, 4] if "x-max-priority" in arguments else list(range(6))
    assert [each.body for each in client.expect_messages(6, 1)] == [
        made(number, 6000) for number in order
    ]
    for queue in queues[1:]:
        got = [client.get(1, queue, no_ack=True) for _ in range(6)]
        assert [each and each.body for each in got] == [made(number, 6000) for number in range(6)]
    deleted(client, exchange, queues)


def first_of(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"x-stream-offset": "first"} if arguments.get("x-queue-type") == "stream" else {}


def test_a_requeued_message_has_its_body_again(client: Client) -> None:
    exchange, queues = fanned_out(client, 2)
    client.publish(1, exchange, "", made(1, 7000), delivery_mode=2)
    for _ in range(3):
        got = client.get(1, queues[0])
        assert got is not None
        assert got.body == made(1, 7000)
        client.send_method(1, "basic.nack", delivery_tag=got.tag, requeue=True)
    deleted(client, exchange, queues)


@pytest.mark.parametrize("way", ["reject", "expire", "overflow"])
@pytest.mark.parametrize("target", ["classic", "stream"])
def test_a_dead_letter_has_its_body(client: Client, way: str, target: str) -> None:
    letters = f"letters-{uuid.uuid4().hex[:8]}"
    client.call(1, "queue.declare", queue=letters, durable=True, arguments={"x-queue-type": target})
    arguments: dict[str, Any] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": letters,
    }
    if way == "expire":
        arguments["x-message-ttl"] = 50
    elif way == "overflow":
        arguments["x-max-length"] = 1
    exchange, queues = fanned_out(client, 2, **arguments)
    bodies = [made(1, 20_000), made(2, 20_000)]
    for each in bodies:
        client.publish(1, exchange, "", each, delivery_mode=2)
    if way == "reject":
        for _ in bodies:
            got = client.get(1, queues[0])
            assert got is not None
            client.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    client.call(1, "basic.qos", prefetch_count=10)
    client.call(
        1,
        "basic.consume",
        queue=letters,
        arguments={"x-stream-offset": "first"} if target == "stream" else {},
    )
    dead = bodies[:1] if way == "overflow" else bodies
    assert [each.body for each in client.expect_messages(len(dead), 1)] == dead
    got = client.get(1, queues[1])
    assert got is not None
    assert got.body == bodies[0]
    deleted(client, exchange, [*queues, letters])


def test_a_delayed_message_is_shared_when_it_is_due(client: Client) -> None:
    topology = Topology(client, "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    queues = [topology.queue("") for _ in range(3)]
    client.publish(1, topology.exchange, "", made(1, 30_000), headers={"x-delay": 30})
    for queue in queues:
        client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert [each.body for each in client.expect_messages(3, 1)] == [made(1, 30_000)] * 3


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("index", ["ram", "leveldb"])
def test_confirmed_bodies_survive_a_restart(
    make_broker: Callable[..., Appliance], tmp_path: Path, how: str, index: str
) -> None:
    broker = make_broker(message_store_index=index, body_file_size=262144)
    expected = [made(number, 40_000) for number in range(30)]
    with Client.open((broker.host, broker.amqp_port)) as client:
        exchange, queues = fanned_out(client, 3)
        client.call(1, "confirm.select")
        client.send(
            b"".join(raw.publish(1, exchange, "", body, delivery_mode=2) for body in expected)
        )
        client.expect_confirms(1, 30)
        for _ in range(10):
            client.get(1, queues[0], no_ack=True)
        client.fence(1)
    broker.stop() if how == "stop" else broker.kill()
    broker.start()
    bodies = sum(path.stat().st_size for path in broker.data_dir.rglob("*.bdy"))
    assert bodies < 30 * 40_000 * 1.05
    with Client.open((broker.host, broker.amqp_port)) as client:
        for queue, first in zip(queues, (10, 0, 0), strict=True):
            client.call(1, "basic.consume", queue=queue, no_ack=True)
            got = [message.body for message in client.expect_messages(30 - first, 1)]
            assert got == expected[first:]
        deleted(client, exchange, queues)
    broker.stop()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("message_store_index", "sqlite"),
        ("embed_below", "-1"),
        ("body_file_size", "1 KiB"),
        ("body_write_buffer", "1"),
        ("bloom_filter_size", "10"),
    ],
)
def test_it_refuses_settings_that_make_no_sense(
    make_broker: Callable[..., Appliance], setting: str, value: str
) -> None:
    with pytest.raises(AssertionError, match=setting.replace("_", ".")):
        make_broker(**{setting: value})
