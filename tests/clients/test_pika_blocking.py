"""Daily work through pika's blocking adapter."""

import random
import uuid
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    UnroutableError,
)

from tests.clients.conftest import parameters

SIZES = [0, 1, 131_063, 131_064, 131_065, 131_073, 1 << 20, 20 << 20]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def test_it_publishes_and_gets(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, b"hello", PERSISTENT)
    method, properties, body = channel.basic_get(name)
    assert (method.redelivered, properties.delivery_mode, body) == (False, 2, b"hello")
    channel.basic_ack(method.delivery_tag)
    assert channel.basic_get(name) == (None, None, None)
    channel.queue_delete(name)


@pytest.mark.parametrize("size", SIZES)
def test_it_carries_bodies_of_any_size(channel: BlockingChannel, name: str, size: int) -> None:
    data = random.Random(size).randbytes(size)
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True)
    channel.basic_publish("", name, data, PERSISTENT, mandatory=True)
    _, _, body = channel.basic_get(name, auto_ack=True)
    assert body == data
    channel.queue_delete(name)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 254, 255])
def test_it_carries_short_strings_of_any_length(
    channel: BlockingChannel, name: str, length: int
) -> None:
    text = "s" * length
    channel.queue_declare(name, exclusive=True)
    properties = pika.BasicProperties(
        content_type=text, correlation_id=text, reply_to=text, message_id=text, type=text,
        app_id=text,
    )  # fmt: skip
    channel.basic_publish("", name, b"x", properties)
    _, got, _ = channel.basic_get(name, auto_ack=True)
    for field in ("content_type", "correlation_id", "reply_to", "message_id", "type", "app_id"):
        assert (getattr(got, field) or "") == text
    if length:
        channel.exchange_declare(text, "fanout", auto_delete=True)
        channel.queue_bind(name, text, text)
        channel.basic_publish(text, text, b"y")
        method, _, _ = channel.basic_get(name, auto_ack=True)
        assert (method.exchange, method.routing_key) == (text, text)
        channel.exchange_delete(text)


def test_it_carries_headers(channel: BlockingChannel, name: str) -> None:
    headers = {
        "text": "x", "number": 1, "big": 2**40, "flag": True, "nothing": None,
        "list": [1, "two", [3]], "table": {"deep": {"er": False}}, "negative": -5,
    }  # fmt: skip
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"x", pika.BasicProperties(headers=headers))
    _, properties, _ = channel.basic_get(name, auto_ack=True)
    assert properties.headers == headers


def test_it_confirms_and_returns(channel: BlockingChannel, name: str) -> None:
    channel.confirm_delivery()
    channel.queue_declare(name, exclusive=True)
    for _ in range(20):
        channel.basic_publish("", name, b"x", PERSISTENT, mandatory=True)
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", f"{name}-nobody", b"back", mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.body) == (312, b"back")
    assert channel.queue_declare(name, passive=True).method.message_count == 20


def test_it_consumes_with_prefetch(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.basic_qos(prefetch_count=5)
    for number in range(100):
        channel.basic_publish("", name, str(number))
    seen = []
    for method, _, body in channel.consume(name, inactivity_timeout=60):
        assert method is not None
        seen.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 100:
            break
    assert channel.cancel() == 0
    assert seen == list(range(100))


def test_it_requeues_what_a_consumer_leaves(
    channel: BlockingChannel, amqp_address: tuple[str, int], name: str
) -> None:
    channel.queue_declare(name)
    for number in range(10):
        channel.basic_publish("", name, str(number))
    other = pika.BlockingConnection(parameters(amqp_address))
    taken = other.channel()
    tags = []
    for method, _, _ in taken.consume(name, inactivity_timeout=60):
        assert method is not None
        tags.append(method.delivery_tag)
        if len(tags) == 10:
            break
    taken.basic_ack(tags[4], multiple=True)
    taken.basic_nack(tags[5], requeue=False)
    other.close()
    left = []
    while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
        left.append((int(got[2]), got[0].redelivered))
    assert left == [(6, True), (7, True), (8, True), (9, True)]
    channel.queue_delete(name)


@pytest.mark.parametrize(
    ("type_", "binding", "key", "headers"),
    [
        ("direct", {"routing_key": "k"}, "k", None),
        ("fanout", {}, "anything", None),
        ("topic", {"routing_key": "a.*.#"}, "a.b.c.d", None),
        ("headers", {"arguments": {"x-match": "all", "h": "v"}}, "", {"h": "v", "other": 1}),
    ],
)
def test_it_routes_by_every_exchange_type(
    channel: BlockingChannel,
    name: str,
    type_: str,
    binding: dict[str, Any],
    key: str,
    headers: dict[str, Any] | None,
) -> None:
    channel.exchange_declare(name, type_, auto_delete=True)
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, name, **binding)
    channel.basic_publish(name, key, b"x", pika.BasicProperties(headers=headers))
    assert channel.basic_get(queue, auto_ack=True)[2] == b"x"
    channel.queue_unbind(queue, name, binding.get("routing_key"), binding.get("arguments"))


def test_it_works_in_transactions(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.tx_select()
    channel.basic_publish("", name, b"dropped")
    channel.tx_rollback()
    channel.basic_publish("", name, b"kept")
    channel.tx_commit()
    method, _, body = channel.basic_get(name)
    assert body == b"kept"
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_it_declares_exclusive_and_server_named_queues(
    channel: BlockingChannel, amqp_address: tuple[str, int]
) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    assert queue.startswith("amq.gen-")
    with pika.BlockingConnection(parameters(amqp_address)) as other:
        with pytest.raises(ChannelClosedByBroker) as caught:
            other.channel().queue_declare(queue, passive=True)
        assert caught.value.reply_code == 405


def test_it_purges_and_deletes(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name)
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("", name, b"x")
    assert channel.queue_purge(name).method.message_count == 3
    channel.basic_publish("", name, b"x")
    assert channel.queue_delete(name).method.message_count == 1
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert (caught.value.reply_code, name in caught.value.reply_text) == (404, True)


def test_it_tells_consumers_that_their_queue_is_gone(
    channel: BlockingChannel, blocking: pika.BlockingConnection, name: str
) -> None:
    cancelled: list[Any] = []
    channel.queue_declare(name)
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(name, lambda *_: None, consumer_tag="gone")
    blocking.channel().queue_delete(name)
    blocking.process_data_events(time_limit=5)
    assert [frame.method.consumer_tag for frame in cancelled] == ["gone"]


def test_it_refuses_a_wrong_password(amqp_address: tuple[str, int]) -> None:
    credentials = pika.PlainCredentials("guest", "not guest")
    with pytest.raises(AMQPConnectionError) as caught:
        pika.BlockingConnection(parameters(amqp_address, credentials=credentials))
    assert "403" in repr(caught.value)


def test_it_refuses_an_unknown_vhost(amqp_address: tuple[str, int]) -> None:
    with pytest.raises((ConnectionClosedByBroker, AMQPConnectionError)) as caught:
        pika.BlockingConnection(parameters(amqp_address, virtual_host=uuid.uuid4().hex))
    assert "not found" in repr(caught.value)


def test_it_keeps_a_connection_alive_by_heartbeats(amqp_address: tuple[str, int]) -> None:
    with pika.BlockingConnection(parameters(amqp_address, heartbeat=2)) as connection:
        connection.process_data_events(time_limit=5)
        channel = connection.channel()
        assert channel.queue_declare("", exclusive=True).method.queue


def test_it_shares_a_queue_between_consumers(
    amqp_address: tuple[str, int], channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    counts = [0, 0]
    connections = [pika.BlockingConnection(parameters(amqp_address)) for _ in counts]
    for index, connection in enumerate(connections):
        work = connection.channel()
        work.basic_qos(prefetch_count=1)

        def on_message(
            work: BlockingChannel, method: Any, _properties: Any, _body: bytes, index: int = index
        ) -> None:
            counts[index] += 1
            work.basic_ack(method.delivery_tag)

        work.basic_consume(name, on_message)
    for _ in range(20):
        channel.basic_publish("", name, b"x")
    while sum(counts) < 20:
        for connection in connections:
            connection.process_data_events(time_limit=0.05)
    assert min(counts) >= 5
    for connection in connections:
        connection.close()
    channel.queue_delete(name)
