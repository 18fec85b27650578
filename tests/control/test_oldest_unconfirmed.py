"""Since when the publishers of a queue that confirms on ack wait."""

from __future__ import annotations

import time
from typing import Any

import pytest

from management.broker_client import BrokerClient
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make


async def oldest(client: BrokerClient, queue: str) -> Any:
    row = await client.call("item", noun="queues", vhost="/", name=queue)
    return row["oldest_unconfirmed"]


@pytest.fixture
def broker(make_broker: Make) -> Appliance:
    return make_broker()


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["plain", "priorities"])
async def test_it_is_the_time_of_the_first_that_is_open(
    broker: Appliance, arguments: dict[str, Any]
) -> None:
    control = BrokerClient(broker.control_socket)
    address = broker.host, broker.amqp_port
    with Client.open(address) as publisher, Client.open(address) as consumer:
        publisher.call(
            1,
            "queue.declare",
            queue="q",
            durable=True,
            arguments={"x-confirm-on": "ack", **arguments},
        )
        assert await oldest(control, "q") is None
        # Without confirms nobody waits.
        publisher.publish(1, "", "q", b"m")
        publisher.fence(1)
        assert await oldest(control, "q") is None
        publisher.call(1, "queue.purge", queue="q")
        publisher.call(1, "confirm.select")
        before = time.time() * 1000
        for priority in (1, 2):
            publisher.publish(1, "", "q", b"m", priority=priority)
            publisher.fence(1)
        first = await oldest(control, "q")
        assert abs(first - before) < 60_000
        # Where it is taken and not acked, its publisher still waits.
        consumer.call(1, "basic.qos", prefetch_count=2)
        consumer.call(1, "basic.consume", queue="q", consumer_tag="c")
        tags = [message.tag for message in consumer.expect_messages(2)]
        again = await oldest(control, "q")
        assert again is not None
        assert first <= again < first + 60_000
        for tag in tags:
            consumer.send_method(1, "basic.ack", delivery_tag=tag)
        publisher.expect_confirms(1, 2)
        assert await oldest(control, "q") is None
    await control.close()
    broker.close()


async def test_a_queue_that_confirms_on_writing_has_none(broker: Appliance) -> None:
    control = BrokerClient(broker.control_socket)
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"m", delivery_mode=2)
        client.expect_confirms(1, 1)
        assert await oldest(control, "q") is None
    await control.close()
    broker.close()


async def test_looking_does_not_mark_messages_as_delivered(broker: Appliance) -> None:
    control = BrokerClient(broker.control_socket)
    address = broker.host, broker.amqp_port
    with Client.open(address) as client:
        arguments = {"x-confirm-on": "ack"}
        client.call(1, "queue.declare", queue="q", durable=True, arguments=arguments)
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"m", delivery_mode=2)
        # A reply that waits for the disk: the record is in its file.
        client.call(1, "queue.declare", queue="other", durable=True)
        assert await oldest(control, "q") is not None
    await control.close()
    broker.stop()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        got = client.get(1, "q")
        assert got is not None
        assert not got.redelivered
    broker.close()
