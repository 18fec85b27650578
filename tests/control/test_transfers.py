"""Moving and copying between queues: order, marks, counts and properties stay as they were."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.test_real_broker import control
from tests.control.transferring import (
    PERSISTENT,
    bodies,
    done,
    drained,
    filled,
    held,
    publish,
    queue,
    start,
    until,
)


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


async def counts(client: BrokerClient, name: str, vhost: str = "/") -> tuple[int, int]:
    row = await client.call("item", noun="queues", vhost=vhost, name=name)
    return row["messages_ready"], row["messages_unacknowledged"]


async def test_a_move_takes_all_messages_in_their_order(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 300), queue(channel)
    row = await done(client, "move", source, target)
    assert (row["state"], row["handed_over"], row["left"]) == ("finished", 300, 0)
    assert await counts(client, source) == (0, 0)
    assert drained(channel, target) == [(body, False) for body in bodies(*range(300))]


async def test_a_copy_leaves_the_source_as_it_was(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 50), queue(channel)
    row = await done(client, "copy", source, target)
    assert (row["state"], row["handed_over"]) == ("finished", 50)
    assert drained(channel, target) == [(body, False) for body in bodies(*range(50))]
    assert drained(channel, source) == [(body, False) for body in bodies(*range(50))]


async def test_properties_headers_and_address_stay_as_they_were(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = queue(channel), queue(channel)
    properties = pika.BasicProperties(
        content_type="text/plain",
        headers={"a": 1, "b": [True, None]},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="86400000",
        message_id="m",
        timestamp=7,
        type="t",
        app_id="app",
    )
    channel.queue_bind(source, "amq.topic", "one.#")
    channel.basic_publish("amq.topic", "one.two", b"body", properties)
    await done(client, "move", source, target)
    method, found, body = channel.basic_get(target, auto_ack=True)
    assert method is not None
    assert (method.exchange, method.routing_key, body) == ("amq.topic", "one.two", b"body")
    assert found == properties


async def test_what_was_delivered_before_is_redelivered_and_only_that(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 6), queue(channel)
    taken = [channel.basic_get(source)[0] for _ in range(3)]
    for method in (taken[2], taken[0]):
        channel.basic_reject(method.delivery_tag, requeue=True)
    row = await done(client, "move", source, target)
    assert row["handed_over"] == 5
    assert await counts(client, source) == (0, 1)
    assert drained(channel, target) == [
        (b"0", True),
        (b"2", True),
        (b"3", False),
        (b"4", False),
        (b"5", False),
    ]
    channel.basic_reject(taken[1].delivery_tag, requeue=True)
    assert drained(channel, source) == [(b"1", True)]


async def test_a_filter_takes_out_of_the_middle_of_what_came_back(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 60), queue(channel)
    tags = [channel.basic_get(source)[0].delivery_tag for _ in range(60)]
    # In an order of its own, and one is still held.
    for tag in [*tags[30:], *tags[1:30]]:
        channel.basic_reject(tag, requeue=True)
    row = await done(client, "move", source, target, header="kind", value="odd")
    assert row["handed_over"] == 30
    assert await counts(client, source) == (29, 1)
    publish(channel, source, range(100, 103))
    assert drained(channel, target) == [(body, True) for body in bodies(*range(1, 60, 2))]
    assert held(channel, source) == bodies(*range(2, 60, 2), 100, 101, 102)
    channel.basic_ack(tags[0])
    assert await counts(client, source) == (0, 0)


async def test_the_count_of_returns_goes_with_a_message(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 5}
    source, target = filled(channel, 2, **arguments), queue(channel, **arguments)
    for _ in range(3):
        channel.basic_reject(channel.basic_get(source)[0].delivery_tag, requeue=True)
    await done(client, "move", source, target)
    method, properties, body = channel.basic_get(target, auto_ack=True)
    assert (body, method.redelivered) == (b"0", True)
    assert properties.headers["x-delivery-count"] == 3
    method, properties, body = channel.basic_get(target, auto_ack=True)
    assert (body, method.redelivered) == (b"1", False)
    assert "x-delivery-count" not in properties.headers


async def test_a_count_of_returns_reaches_the_limit_of_the_target(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = filled(channel, 1, **{"x-queue-type": "quorum", "x-delivery-limit": 5})
    target = queue(channel, **{"x-queue-type": "quorum", "x-delivery-limit": 2})
    for _ in range(2):
        channel.basic_reject(channel.basic_get(source)[0].delivery_tag, requeue=True)
    await done(client, "move", source, target)
    method, _, _ = channel.basic_get(target)
    channel.basic_reject(method.delivery_tag, requeue=True)
    assert held(channel, target) == []


async def test_a_filter_leaves_the_others_in_place_and_unmarked(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 101), queue(channel)
    row = await done(client, "move", source, target, header="kind", value="odd")
    assert (row["looked"], row["matched"], row["handed_over"]) == (101, 50, 50)
    assert await counts(client, source) == (51, 0)
    assert drained(channel, target) == [(body, False) for body in bodies(*range(1, 101, 2))]
    assert drained(channel, source) == [(body, False) for body in bodies(*range(0, 101, 2))]


async def test_a_filter_finds_numbers_routing_keys_and_ages(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 20), queue(channel)
    channel.queue_bind(source, "amq.direct", f"{source}.other")
    channel.basic_publish("amq.direct", f"{source}.other", b"other", PERSISTENT)
    await done(client, "move", source, target, header="number", value="7")
    assert held(channel, target) == [b"7"]
    await done(client, "move", source, target, routing_key=r"\.other$")
    assert held(channel, target) == [b"other"]
    await done(client, "move", source, target, older_than=3600)
    assert held(channel, target) == []
    await done(client, "move", source, target, newer_than=3600, limit=2)
    assert held(channel, target) == bodies(0, 1)
    assert held(channel, source) == bodies(*(n for n in range(2, 20) if n != 7))


async def test_messages_that_come_later_are_not_touched(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 5), queue(channel)
    full = queue(channel, **{"x-max-length": 2, "x-overflow": "reject-publish"})
    started = await start(client, "move", source, full)
    await until(client, started["id"], "blocked")
    publish(channel, source, range(100, 103))
    channel.queue_purge(full)
    await until(client, started["id"], "blocked")
    while (
        held(channel, full)
        or (await until(client, started["id"], "blocked", "finished"))["state"] != "finished"
    ):
        pass
    assert held(channel, source) == bodies(100, 101, 102)
    assert held(channel, target) == []


async def test_a_full_target_holds_the_move_up_and_loses_nothing(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = filled(channel, 10)
    target = queue(channel, **{"x-max-length": 4, "x-overflow": "reject-publish"})
    started = await start(client, "move", source, target)
    row = await until(client, started["id"], "blocked")
    assert "is full" in row["reason"] and target in row["reason"]
    assert (row["handed_over"], row["left"]) == (4, 6)
    assert await counts(client, source) == (6, 0)
    found: list[bytes] = []
    while (await until(client, started["id"], "blocked", "running", "finished"))[
        "state"
    ] != "finished":
        found += held(channel, target)
    found += held(channel, target)
    assert found == bodies(*range(10))


async def test_a_full_target_with_a_dead_letter_exchange_gets_no_dead_letters_of_a_move(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, dead = filled(channel, 5), queue(channel)
    target = queue(
        channel,
        **{
            "x-max-length": 2,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": dead,
        },
    )
    started = await start(client, "move", source, target)
    await until(client, started["id"], "blocked")
    await client.call("transfer.delete", id=started["id"])
    row = await until(client, started["id"], "stopped")
    assert row["handed_over"] == 2
    assert held(channel, dead) == []
    assert held(channel, source) == bodies(2, 3, 4)


async def test_a_stopped_move_leaves_the_rest_where_it_is(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = filled(channel, 6)
    target = queue(channel, **{"x-max-length": 3, "x-overflow": "reject-publish"})
    started = await start(client, "move", source, target)
    await until(client, started["id"], "blocked")
    assert await client.call("transfer.delete", id=started["id"]) == {"state": "stopped"}
    assert drained(channel, source) == [(body, False) for body in bodies(3, 4, 5)]
    assert drained(channel, target) == [(body, False) for body in bodies(0, 1, 2)]
    await client.call("transfer.delete", id=started["id"])
    assert all(row["id"] != started["id"] for row in await client.call("transfer.list"))


async def test_a_move_to_an_exchange_reaches_all_its_queues(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, first, second = filled(channel, 4), queue(channel), queue(channel)
    exchange = f"exchange.{source}"
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(first, exchange)
    channel.queue_bind(second, exchange)
    row = await done(client, "move", source, exchange, target_type="exchange")
    assert row["handed_over"] == 4
    method, _, body = channel.basic_get(first, auto_ack=True)
    assert (method.exchange, method.routing_key, body) == (exchange, source, b"0")
    assert held(channel, first) == bodies(1, 2, 3)
    assert held(channel, second) == bodies(0, 1, 2, 3)
    assert held(channel, source) == []
    channel.exchange_delete(exchange)


async def test_an_exchange_without_a_queue_holds_the_move_up(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 3), queue(channel)
    exchange = f"exchange.{source}"
    channel.exchange_declare(exchange, "direct")
    started = await start(client, "move", source, exchange, target_type="exchange")
    row = await until(client, started["id"], "blocked")
    assert "to no queue" in row["reason"]
    assert await counts(client, source) == (3, 0)
    channel.queue_bind(target, exchange, source)
    await until(client, started["id"], "finished")
    assert held(channel, target) == bodies(0, 1, 2)
    channel.exchange_delete(exchange)


async def test_it_moves_and_copies_between_vhosts(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = queue(channel)
    large = bytes(range(256)) * 64
    second = queue(channel)
    # A large body that two queues share: the other vhost gets one of its own.
    channel.queue_bind(source, "amq.fanout")
    channel.queue_bind(second, "amq.fanout")
    channel.basic_publish("amq.fanout", "key", large, PERSISTENT)
    channel.queue_unbind(source, "amq.fanout")
    channel.queue_unbind(second, "amq.fanout")
    vhost = f"other {source}"
    await client.call("vhost.put", name=vhost)
    try:
        await client.call("queue.declare", vhost=vhost, name="target", durable=True)
        for mode in ("copy", "move"):
            row = await done(client, mode, source, "target", target_vhost=vhost)
            assert (row["state"], row["handed_over"]) == ("finished", 1)
        found = await client.call("queue.peek", vhost=vhost, name="target", count=5)
        assert [each["payload"] for each in found] == [large, large]
        row = await done(client, "move", second, source)
        assert held(channel, source) == [large]
        row = await done(client, "move", "target", second, vhost=vhost, target_vhost="/")
        assert held(channel, second) == [large, large]
    finally:
        await client.call("vhost.delete", name=vhost)


async def test_it_goes_through_priorities_in_their_order(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = queue(channel, **{"x-max-priority": 5}), queue(channel)
    prioritised = queue(channel, **{"x-max-priority": 5})
    for number in range(12):
        properties = pika.BasicProperties(delivery_mode=2, priority=number % 3)
        channel.basic_publish("", source, b"%d" % number, properties)
    await done(client, "copy", source, prioritised, limit=5)
    assert held(channel, prioritised) == bodies(2, 5, 8, 11, 1)
    await done(client, "move", source, target, limit=7)
    assert held(channel, target) == bodies(2, 5, 8, 11, 1, 4, 7)
    assert drained(channel, source) == [(body, False) for body in bodies(10, 0, 3, 6, 9)]


async def test_a_stream_is_copied_and_not_moved(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 300, **{"x-queue-type": "stream"}), queue(channel)
    with pytest.raises(BrokerError, match="use the mode copy"):
        await start(client, "move", source, target)
    row = await done(client, "copy", source, target, header="kind", value="even")
    assert (row["state"], row["looked"], row["handed_over"]) == ("finished", 300, 150)
    _, properties, body = channel.basic_get(target, auto_ack=True)
    assert body == b"0" and set(properties.headers) == {"kind", "number"}
    assert held(channel, target) == bodies(*range(2, 300, 2))


async def test_a_move_into_a_stream_appends_to_it(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 5), queue(channel, **{"x-queue-type": "stream"})
    await done(client, "move", source, target)
    rows = await client.call("stream.read", vhost="/", name=target, offset="first", count=9)
    assert [row["payload"] for row in rows] == bodies(*range(5))
    assert held(channel, source) == []


async def test_consumers_of_the_source_run_beside_it(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 3000), queue(channel)
    taken: list[bytes] = []

    def take(_: Any, method: Any, __: Any, body: bytes) -> None:
        taken.append(body)
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=20)
    tag = channel.basic_consume(source, take)
    started = await start(client, "move", source, target)
    while (await until(client, started["id"], "waiting", "running", "finished"))[
        "state"
    ] != "finished" or await counts(client, source) != (0, 0):
        channel.connection.process_data_events(0)
    channel.basic_cancel(tag)
    moved = held(channel, target)
    assert sorted(map(int, taken + moved)) == list(range(3000))
    assert moved == sorted(moved, key=int) and taken == sorted(taken, key=int)
    assert await counts(client, source) == (0, 0)


async def test_a_purge_beside_it_leaves_the_counts_right(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source, target = filled(channel, 2000), queue(channel)
    started = await start(client, "move", source, target, header="kind", value="odd")
    channel.queue_purge(source)
    row = await until(client, started["id"], "finished")
    assert await counts(client, source) == (0, 0)
    assert len(held(channel, target)) == row["handed_over"]


async def test_publishers_that_wait_for_consumers_are_confirmed_behind_the_target(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = queue(channel, **{"x-confirm-on": "ack"})
    target = queue(channel, **{"x-confirm-on": "ack"})
    plain = queue(channel)
    for confirmed, wanted in ((plain, b"1"), (target, b"2")):
        await _check_confirm(client, channel, source, confirmed, wanted)


async def _check_confirm(
    client: BrokerClient, channel: BlockingChannel, source: str, target: str, body: bytes
) -> None:
    raised: list[BaseException] = []
    published = threading.Event()

    def confirmed() -> None:
        try:
            other = pika.BlockingConnection(channel.connection._impl.params).channel()
            other.confirm_delivery()
            other.basic_publish("", source, body, PERSISTENT)
        except BaseException as error:
            raised.append(error)
        published.set()

    publisher = threading.Thread(target=confirmed, daemon=True)
    publisher.start()
    while (await counts(client, source))[0] == 0:
        pass
    await done(client, "move", source, target)
    method, _, found = channel.basic_get(target)
    assert found == body
    channel.basic_ack(method.delivery_tag)
    assert published.wait(60) and not raised
