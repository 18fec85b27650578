"""What happens to messages in queues is kept in the history, and told as the life of each."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.own_vhost import own_vhost
from tests.control.replaying import replayed
from tests.control.test_real_broker import connect, control, until

HISTORY = "amq.history"
KEYS = "message_id"


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
async def vhost(client: BrokerClient) -> AsyncIterator[str]:
    """A vhost of an unused name, whose history has events of all queues."""
    async with own_vhost(client, "events") as name:
        await keep(client, name, history_events=True)
        yield name


@pytest.fixture
def amqp(shared_broker: Appliance, vhost: str) -> Iterator[BlockingChannel]:
    connection = connect(shared_broker, vhost=vhost)
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


async def keep(client: BrokerClient, vhost: str, **more: Any) -> None:
    definition: dict[str, Any] = {"history": "full", "history-keys": KEYS}
    definition |= {key.replace("_", "-"): value for key, value in more.items()}
    await client.call("policy.put", vhost=vhost, name="all", pattern=".*", definition=definition)


def publish(amqp: BlockingChannel, key: str, exchange: str = "", **more: Any) -> str:
    """Publishes a message and returns its id."""
    name = uuid.uuid4().hex
    properties = pika.BasicProperties(message_id=name, delivery_mode=2, **more)
    amqp.basic_publish(exchange, key, more.get("body", b"body"), properties)
    return name


async def life_of(client: BrokerClient, vhost: str, message_id: str) -> dict[str, Any]:
    """The life of the only message with this id."""
    found = await client.call(
        "stream.search", vhost=vhost, name=HISTORY, key="message_id", value=message_id
    )
    offset = found["messages"][-1]["offset"]
    life: dict[str, Any] = await client.call("history.life", vhost=vhost, offset=offset)
    return life


async def told(
    client: BrokerClient, vhost: str, message_id: str, *expected: str
) -> list[dict[str, Any]]:
    """The events of a message once they are these."""
    life = await until(
        lambda: life_of(client, vhost, message_id),
        lambda life: [event["event"] for event in life["events"]] == list(expected),
    )
    assert life["complete"], life["reasons"]
    events: list[dict[str, Any]] = life["events"]
    return events


def take(amqp: BlockingChannel, queue: str) -> int:
    """Gets a message, unacknowledged; its delivery tag."""
    method, _, _ = amqp.basic_get(queue)
    assert method is not None
    return int(method.delivery_tag)


async def test_a_message_that_is_consumed_and_acked_says_by_whom(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("orders", durable=True)
    name = publish(amqp, "orders")
    published = (await told(client, vhost, name, "published"))[0]
    assert published["queues"] == ["orders"]
    generator = amqp.consume("orders")
    method, _, _ = next(generator)
    await told(client, vhost, name, "published", "delivered")
    amqp.basic_ack(method.delivery_tag)
    _, delivered, acked = await told(client, vhost, name, "published", "delivered", "acked")
    amqp.cancel()
    for event in (delivered, acked):
        assert (event["queue"], event["user"]) == ("orders", "guest")
        assert event["consumer_tag"] == method.consumer_tag
        assert event["connection"] == published["connection"]
    life = await life_of(client, vhost, name)
    assert [(place["queue"], place["state"]) for place in life["places"]] == [("orders", "acked")]
    assert published["timestamp"] <= delivered["timestamp"] <= acked["timestamp"]


async def test_a_rejected_message_is_followed_to_where_it_was_dead_lettered(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    amqp.queue_declare("orders", durable=True, arguments=arguments)
    amqp.queue_declare("dead", durable=True)
    name = publish(amqp, "orders")
    amqp.basic_reject(take(amqp, "orders"), requeue=False)
    events = await told(client, vhost, name, "published", "got", "rejected", "dead_lettered")
    assert (events[-1]["queue"], events[-1]["queues"]) == ("orders", ["dead"])
    amqp.basic_ack(await got_when_there(amqp, "dead"))
    names = ("published", "got", "rejected", "dead_lettered", "got", "acked")
    events = await told(client, vhost, name, *names)
    assert [event["queue"] for event in events[-2:]] == ["dead", "dead"]
    life = await life_of(client, vhost, name)
    assert {place["queue"]: place["state"] for place in life["places"]} == {
        "orders": "dead_lettered",
        "dead": "acked",
    }


async def got_when_there(amqp: BlockingChannel, queue: str) -> int:
    for _ in range(200):
        method, _, _ = amqp.basic_get(queue)
        if method is not None:
            return int(method.delivery_tag)
        await asyncio.sleep(0.05)
    raise AssertionError(f"nothing came to {queue}")


async def test_messages_that_expire_are_dropped_or_come_back_too_often_say_so(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("short", durable=True, arguments={"x-message-ttl": 20})
    amqp.queue_declare("small", durable=True, arguments={"x-max-length": 1})
    quorum = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    amqp.queue_declare("limited", durable=True, arguments=quorum)
    expired = publish(amqp, "short")
    dropped = publish(amqp, "small")
    publish(amqp, "small")
    returned = publish(amqp, "limited")
    for _ in range(2):
        amqp.basic_reject(take(amqp, "limited"), requeue=True)
    await told(client, vhost, expired, "published", "expired")
    await told(client, vhost, dropped, "published", "dropped")
    names = ("published", "got", "requeued", "got", "delivery_limit")
    await told(client, vhost, returned, *names)


async def test_each_queue_of_a_route_and_each_level_of_a_priority_queue_is_told(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("plain", durable=True)
    amqp.queue_declare("levels", durable=True, arguments={"x-max-priority": 5})
    amqp.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    for queue in ("plain", "levels", "log"):
        amqp.queue_bind(queue, "amq.fanout")
    name = publish(amqp, "", "amq.fanout", priority=4)
    large = uuid.uuid4().hex
    properties = pika.BasicProperties(message_id=large, delivery_mode=2, priority=2)
    amqp.basic_publish("amq.fanout", "", bytes(100_000), properties)
    amqp.basic_ack(take(amqp, "levels"))
    amqp.basic_ack(take(amqp, "plain"))
    events = await told(client, vhost, name, "published", "got", "acked", "got", "acked")
    assert [event["queue"] for event in events[1:]] == ["levels", "levels", "plain", "plain"]
    places = (await life_of(client, vhost, name))["places"]
    assert {place["queue"]: place["state"] for place in places} == {
        "plain": "acked",
        "levels": "acked",
        "log": "stored",
    }
    amqp.basic_ack(take(amqp, "plain"))
    events = await told(client, vhost, large, "published", "got", "acked")
    places = (await life_of(client, vhost, large))["places"]
    assert {place["queue"]: place["state"] for place in places} == {
        "plain": "acked",
        "levels": "stored",
        "log": "stored",
    }


async def test_a_purge_and_the_end_of_a_queue_end_what_was_in_it(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("purged", durable=True)
    amqp.queue_declare("deleted", durable=True)
    before = publish(amqp, "purged")
    amqp.basic_ack(take(amqp, "purged"))
    ready, other = publish(amqp, "purged"), publish(amqp, "deleted")
    amqp.queue_purge("purged")
    amqp.queue_delete("deleted")
    await told(client, vhost, before, "published", "got", "acked")
    await told(client, vhost, ready, "published", "purged")
    await told(client, vhost, other, "published", "deleted")


async def test_moves_and_replays_are_events(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    for queue in ("from", "to", "again"):
        amqp.queue_declare(queue, durable=True)
    name = publish(amqp, "from")
    await client.call(
        "transfer.start", vhost=vhost, name="from", mode="move", target="to", as_user="guest"
    )
    events = await told(client, vhost, name, "published", "moved")
    assert (events[1]["queue"], events[1]["queues"]) == ("from", ["to"])
    amqp.basic_ack(take(amqp, "to"))
    await told(client, vhost, name, "published", "moved", "got", "acked")
    life = await life_of(client, vhost, name)
    offset = life["record"]["offset"]
    await replayed(client, HISTORY, "again", vhost=vhost, offsets=[offset])
    names = ("published", "moved", "got", "acked", "replayed")
    events = await told(client, vhost, name, *names)
    assert events[-1]["queues"] == ["again"]
    amqp.basic_ack(take(amqp, "again"))
    await told(client, vhost, name, *names, "got", "acked")


async def test_a_replay_of_the_whole_history_hands_over_messages_and_no_events(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("orders", durable=True)
    amqp.queue_declare("again", durable=True)
    names = [publish(amqp, "orders") for _ in range(3)]
    for _ in names:
        amqp.basic_ack(take(amqp, "orders"))
    await told(client, vhost, names[-1], "published", "got", "acked")
    row = await replayed(client, HISTORY, "again", vhost=vhost)
    assert row["handed_over"] == 3
    assert row["passed"] >= 6
    again = [amqp.basic_get("again", auto_ack=True)[1].message_id for _ in names]
    assert again == names


async def test_without_the_policy_no_event_is_kept_and_the_life_says_so(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    await keep(client, vhost)
    amqp.queue_declare("orders", durable=True)
    name = publish(amqp, "orders")
    amqp.basic_ack(take(amqp, "orders"))
    life = await life_of(client, vhost, name)
    assert [event["event"] for event in life["events"]] == ["published"]
    assert (life["kept"], life["places"]) == (False, [])


async def test_events_that_are_given_up_are_counted_and_told(tmp_path: Path) -> None:
    appliance = Appliance("broker", tmp_path, history_events_buffer=0).start()
    try:
        async with control(appliance) as client:
            await keep(client, "/", history_events=True)
            amqp = connect(appliance).channel()
            amqp.confirm_delivery()
            amqp.queue_declare("orders", durable=True)
            generator = amqp.consume("orders", inactivity_timeout=0.01)
            next(generator)
            # Delivered while its own record waits for the disk, and acked afterwards.
            name = publish(amqp, "orders")
            method, _, _ = next(each for each in generator if each[0] is not None)
            amqp.basic_ack(method.delivery_tag)
            life = await until(
                lambda: life_of(client, "/", name), lambda life: len(life["events"]) > 1
            )
            assert [event["event"] for event in life["events"]] == ["published", "acked"]
            assert not life["complete"]
            assert "1 events of this virtual host were given up" in life["reasons"][0]
            text = (await client.call("metrics"))["body"].decode()
            assert "history_events_lost_total 1" in text
            amqp.connection.close()
    finally:
        appliance.close()


async def test_a_life_takes_the_right_to_read_the_history_and_an_offset_of_a_message(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("orders", durable=True)
    name = publish(amqp, "orders")
    amqp.basic_ack(take(amqp, "orders"))
    events = await told(client, vhost, name, "published", "got", "acked")
    for offset, words in (
        (events[1]["offset"], "is an event"),
        (10**6, "has no record"),
        (-1, "has no record"),
        (2**62, "has no record"),
    ):
        with pytest.raises(BrokerError, match=words):
            await client.call("history.life", vhost=vhost, offset=offset)
    user = f"tenant-{uuid.uuid4().hex[:8]}"
    await client.call("user.put", name=user, password="secret", tags="management")
    try:
        await client.call(
            "permission.put", vhost=vhost, user=user, configure=".*", write=".*", read=".*"
        )
        with pytest.raises(BrokerError) as caught:
            await client.call("history.life", vhost=vhost, offset=0, as_user=user)
        assert caught.value.status == 401
    finally:
        await client.call("user.delete", name=user)
