"""The limit that basic.qos with `global` sets for a whole channel, and what basic.qos without it
means to clients of either kind."""

from collections import Counter
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.limited_queues import limited
from tests.amqp.raw import CAPABILITIES, Client, method

Address = tuple[str, int]


def filled(client: Client, *counts: int) -> list[str]:
    """New queues with so many messages."""
    queues = [limited(client) for _ in counts]
    for queue, count in zip(queues, counts, strict=True):
        client.send(raw.publish(1, "", queue, b"x") * count)
    client.fence(1)
    return queues


def consume_all(client: Client, *queues: str, **values: Any) -> None:
    """Consumers `0`, `1`, … of these queues, in one packet."""
    client.send(
        b"".join(
            method(1, "basic.consume", queue=queue, consumer_tag=str(tag), nowait=True, **values)
            for tag, queue in enumerate(queues)
        )
    )


def acked(client: Client, count: int, limit: int = 1, before_ack: bytes = b"") -> str:
    """The tags of the next deliveries. All that the limit allows are read before one is acked:
    acks that the broker takes together leave room for several, which one queue may fill."""
    held = [client.expect_message(channel=1) for _ in range(limit - 1)]
    tags = "".join(got.method.consumer_tag for got in held)
    while len(tags) < count:
        held.append(client.expect_message(channel=1))
        tags += held[-1].method.consumer_tag
        client.send(before_ack + method(1, "basic.ack", delivery_tag=held.pop(0).tag))
    return tags


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_the_queues_of_a_channel_share_its_limit_in_turn(
    client: Client, limit: int, flavour: str
) -> None:
    queues = filled(client, 100, 100, 100)
    client.call(1, "basic.qos", **{"prefetch_count": limit, "global": True})
    consume_all(client, *queues)
    counts = Counter(acked(client, 99, limit))
    if flavour == "rabbitmq":
        # A random one is asked each time.
        assert min(counts.values()) > 10
    elif limit == 1:
        assert counts == {"0": 33, "1": 33, "2": 33}
    else:
        # The first queue had all the room before the others had a consumer.
        assert max(counts.values()) - min(counts.values()) <= limit + 1


def test_a_queue_that_is_published_to_all_the_time_leaves_the_others_their_turn(
    client: Client, flavour: str
) -> None:
    busy, other = filled(client, 2, 100)
    client.call(1, "basic.qos", **{"prefetch_count": 1, "global": True})
    consume_all(client, busy, other)
    tags = acked(client, 60, before_ack=raw.publish(1, "", busy, b"x"))
    assert tags.count("1") >= (15 if flavour == "rabbitmq" else 29)


def test_a_queue_that_fills_later_gets_its_turn_at_once(client: Client) -> None:
    full, late = filled(client, 100, 0)
    client.call(1, "basic.qos", **{"prefetch_count": 1, "global": True})
    consume_all(client, full, late)
    assert set(acked(client, 10)) == {"0"}
    client.send(raw.publish(1, "", late, b"x"))
    assert "1" in acked(client, 20)


def test_room_passes_by_consumers_that_cannot_use_it(client: Client) -> None:
    """One is full by itself, one was cancelled, one has nothing: the last one gets the room."""
    queues = filled(client, 10, 10, 0, 10)
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.qos", **{"prefetch_count": 2, "global": True})
    consume_all(client, *queues)
    first, second = client.expect_messages(2, 1)
    assert {first.method.consumer_tag, second.method.consumer_tag} == {"0", "1"}
    client.call(1, "basic.cancel", consumer_tag="1")
    client.send_method(1, "basic.ack", delivery_tag=second.tag)
    got = client.expect_message(channel=1).method.consumer_tag
    assert got == "3" if second.method.consumer_tag == "1" else got in "03"
    client.fence(1)


def test_a_lowered_limit_holds_until_there_is_room_and_none_lets_all_go_on(client: Client) -> None:
    (queue,) = filled(client, 10)
    client.call(1, "basic.qos", **{"prefetch_count": 4, "global": True})
    consume_all(client, queue)
    got = client.expect_messages(4, 1)
    client.call(1, "basic.qos", **{"prefetch_count": 2, "global": True})
    client.send_method(1, "basic.ack", delivery_tag=got[1].tag, multiple=True)
    client.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=got[2].tag)
    client.expect_messages(1, 1)
    client.fence(1)
    client.send_method(1, "basic.qos", **{"prefetch_count": 0, "global": True})
    assert Counter(client.read_names(6)) == {"basic.qos-ok": 1, "basic.deliver": 5}


def test_consumers_without_acks_do_not_count_but_wait_for_room(client: Client) -> None:
    (queue,) = filled(client, 1)
    silent = limited(client)
    client.call(1, "basic.qos", **{"prefetch_count": 1, "global": True})
    client.call(1, "basic.consume", queue=silent, consumer_tag="silent", no_ack=True)
    client.send(raw.publish(1, "", silent, b"x") * 3)
    assert len(client.expect_messages(3, 1)) == 3
    client.send_method(1, "basic.consume", queue=queue, consumer_tag="acking")
    client.expect("basic.consume-ok", 1)
    got = client.expect_message(channel=1)
    client.send(raw.publish(1, "", silent, b"x") * 3)
    client.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=got.tag)
    tags = [message.method.consumer_tag for message in client.expect_messages(3, 1)]
    assert tags == ["silent"] * 3


# -- basic.qos without global ----------------------------------------------------------------------


@pytest.fixture
def by_product(amqp_address: Address, request: pytest.FixtureRequest) -> Client:
    """A client that says it is the library that asks for our product."""
    properties = {"product": "py-amqp", "capabilities": CAPABILITIES}
    client = Client.open(amqp_address, client_properties=properties)
    request.addfinalizer(client.cut)
    return client


def leveret_only(flavour: str) -> None:
    if flavour == "rabbitmq":
        pytest.skip("this library asks RabbitMQ for what RabbitMQ does")


def test_a_raised_prefetch_reaches_the_consumers_of_a_library_that_asks_for_our_product(
    by_product: Client, flavour: str
) -> None:
    leveret_only(flavour)
    (queue,) = filled(by_product, 10)
    by_product.call(1, "basic.qos", prefetch_count=4)
    consume_all(by_product, queue)
    assert len(by_product.expect_messages(4, 1)) == 4
    by_product.fence(1)
    for prefetch in (5, 6):
        by_product.call(1, "basic.qos", prefetch_count=prefetch)
        assert len(by_product.expect_messages(1, 1)) == 1
        by_product.fence(1)


def test_a_lowered_prefetch_reaches_them_too(by_product: Client, flavour: str) -> None:
    leveret_only(flavour)
    (queue,) = filled(by_product, 10)
    by_product.call(1, "basic.qos", prefetch_count=4)
    consume_all(by_product, queue)
    got = by_product.expect_messages(4, 1)
    by_product.call(1, "basic.qos", prefetch_count=1)
    by_product.send_method(1, "basic.ack", delivery_tag=got[2].tag, multiple=True)
    by_product.fence(1)
    by_product.send_method(1, "basic.ack", delivery_tag=got[3].tag)
    assert len(by_product.expect_messages(1, 1)) == 1
    by_product.fence(1)


@pytest.mark.parametrize("product", ["py-amqp", "pika", "raw"])
def test_a_prefetch_between_two_consumes_is_for_the_second(
    amqp_address: Address, product: str
) -> None:
    properties = {"product": product, "capabilities": CAPABILITIES}
    with Client.open(amqp_address, client_properties=properties) as client:
        queue = limited(client)
        client.call(1, "basic.qos", prefetch_count=1)
        client.call(1, "basic.consume", queue=queue, consumer_tag="one")
        client.call(1, "basic.qos", prefetch_count=3)
        client.call(1, "basic.consume", queue=queue, consumer_tag="three")
        client.send(raw.publish(1, "", queue, b"x") * 10)
        got = Counter(message.method.consumer_tag for message in client.expect_messages(4, 1))
        assert got == {"one": 1, "three": 3}
        client.fence(1)


def test_the_other_libraries_keep_rabbitmqs_meaning(client: Client) -> None:
    (queue,) = filled(client, 10)
    client.call(1, "basic.qos", prefetch_count=2)
    consume_all(client, queue)
    client.expect_messages(2, 1)
    client.call(1, "basic.qos", prefetch_count=5)
    client.fence(1)
