"""A broker that ends and comes back, seen by clients: durable things are there, byte for byte."""

import hashlib
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
import pytest

from tests.clients.conftest import parameters

SIZES = [0, 1, 16, 4000, 131_063, 131_064, 131_065, 131_073, 1 << 20]


@pytest.fixture
def own_broker(broker: Any) -> Any:
    """A broker of the test's own, to stop and kill."""
    return broker


@contextmanager
def connect(broker: Any) -> Iterator[pika.BlockingConnection]:
    """A new connection to wherever the broker listens now; it may be lost before it is closed."""
    connection = pika.BlockingConnection(parameters((broker.host, broker.amqp_port)))
    try:
        yield connection
    finally:
        with suppress(pika.exceptions.AMQPError):
            connection.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_durable_messages_outlive_the_broker(own_broker: Any, end: str) -> None:
    chance = random.Random(end)
    bodies = [chance.randbytes(size) for size in SIZES * 3]
    with connect(own_broker) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_declare("all", durable=True, arguments={"x-colour": "red"})
        channel.queue_declare("some", durable=True)
        channel.queue_declare("transient")
        channel.queue_bind("all", "orders", "#")
        channel.queue_bind("some", "orders", "*.1")
        channel.confirm_delivery()
        for number, body in enumerate(bodies):
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(number), headers={"sum": _sum(body)}
            )
            channel.basic_publish("orders", f"order.{number % 3}", body, properties)
        for _ in range(2):
            method, _, _ = channel.basic_get("all")
            channel.basic_ack(method.delivery_tag)
        method, _, _ = channel.basic_get("all")
        channel.basic_qos(prefetch_count=1)
        if end == "kill":
            own_broker.kill()
    if end == "stop":
        assert own_broker.stop() == 0
    for _ in range(2):
        own_broker.start()
        with connect(own_broker) as connection:
            channel = connection.channel()
            channel.exchange_declare("orders", passive=True)
            assert channel.queue_declare("all", passive=True).method.message_count == 25
            assert channel.queue_declare("some", passive=True).method.message_count == 9
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
                connection.channel().queue_declare("transient", passive=True)
        own_broker.kill()
    own_broker.start()
    with connect(own_broker) as connection:
        channel = connection.channel()
        expected = {"all": list(range(2, 27)), "some": list(range(1, 27, 3))}
        for queue, numbers in expected.items():
            for number in numbers:
                method, properties, body = channel.basic_get(queue, auto_ack=True)
                assert method is not None
                assert properties.message_id == str(number)
                assert properties.delivery_mode == 2
                assert method.routing_key == f"order.{number % 3}"
                assert body == bodies[number]
                assert properties.headers["sum"] == _sum(body)
            assert channel.basic_get(queue) == (None, None, None)
        channel.basic_publish("orders", "order.1", b"new")
        assert channel.basic_get("some", auto_ack=True)[2] == b"new"


def test_transient_messages_of_a_durable_queue_keep_their_places(own_broker: Any) -> None:
    with connect(own_broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for number in range(6):
            properties = pika.BasicProperties(delivery_mode=1 + number % 2)
            channel.basic_publish("", "q", str(number), properties)
        own_broker.kill()
    own_broker.start()
    with connect(own_broker) as connection:
        channel = connection.channel()
        bodies = [channel.basic_get("q", auto_ack=True)[2] for _ in range(6)]
        assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_deleted_things_stay_deleted(own_broker: Any) -> None:
    with connect(own_broker) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("gone", "fanout", durable=True)
        for queue in ("gone", "stays"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.fanout")
            channel.basic_publish("", queue, b"old", pika.BasicProperties(delivery_mode=2))
        channel.queue_delete("gone")
        channel.exchange_delete("gone")
        channel.queue_unbind("stays", "amq.fanout")
        channel.queue_purge("stays")
        own_broker.kill()
    own_broker.start()
    with connect(own_broker) as connection:
        channel = connection.channel()
        assert channel.queue_declare("stays", passive=True).method.message_count == 0
        channel.basic_publish("amq.fanout", "", b"x")
        assert channel.basic_get("stays") == (None, None, None)
        assert channel.queue_declare("gone", durable=True).method.message_count == 0
        channel.exchange_declare("gone", "direct", durable=True)


def test_clients_are_told_when_the_broker_stops(own_broker: Any) -> None:
    with connect(own_broker) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_consume(queue, lambda *_: None)
        own_broker.signal(signal.SIGTERM)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            connection.process_data_events(time_limit=20)
        assert caught.value.reply_code == 320
    assert own_broker.wait() == 0
    own_broker.start()


def _sum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
