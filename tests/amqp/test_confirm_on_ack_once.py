"""Confirm on ack: whoever waits is told exactly once, also where the disk has damaged a message,
and where one came back before its queue went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.amqp.raw import Client
from tests.amqp.test_confirm_on_ack import declare, publish, told_nothing
from tests.appliance import Appliance

SHARED = b"s" * 6000


@pytest.fixture
def broker(make_broker: Callable[..., Appliance]) -> Appliance:
    return make_broker()


@pytest.fixture
def amqp_address(broker: Appliance) -> tuple[str, int]:
    """A broker of the test's own: its files are damaged."""
    return broker.host, broker.amqp_port


@pytest.fixture
def publisher(client: Client) -> Iterator[Client]:
    client.call(1, "confirm.select")
    return client


def written(other: Client) -> None:
    """Returns when all that was published before is in its files."""
    other.call(1, "confirm.select")
    publish(other, declare(other, "write"), b"fence")
    other.expect_confirms(1, 1)


def damage(broker: Appliance, pattern: str, content: bytes) -> None:
    """Changes a byte in the middle of `content` in the one file that holds it."""
    (found,) = [
        path
        for path in Path(broker.data_dir).glob(f"vhosts/*/{pattern}")
        if content in path.read_bytes()
    ]
    at = found.read_bytes().index(content) + len(content) // 2
    with found.open("r+b") as file:
        file.seek(at)
        file.write(b"!")


@pytest.mark.parametrize("by", ["get", "consumer"])
def test_a_message_whose_shared_body_is_damaged_is_nacked_once(
    broker: Appliance, publisher: Client, other: Client, by: str
) -> None:
    publisher.call(1, "exchange.declare", exchange="f", type="fanout")
    queues = [declare(publisher, "ack") for _ in range(2)]
    for queue in queues:
        publisher.call(1, "queue.bind", queue=queue, exchange="f")
    publisher.publish(1, "f", "", SHARED, delivery_mode=2)
    publisher.publish(1, "f", "", b"not shared", delivery_mode=2)
    written(other)
    damage(broker, "bodies/*.bdy", SHARED)
    for queue in queues:
        if by == "get":
            assert other.get(1, queue, no_ack=True).body == b"not shared"
        else:
            other.call(1, "basic.consume", queue=queue, no_ack=True)
            assert other.expect_message(channel=1).body == b"not shared"
    assert publisher.expect_confirms(1, 2) == {1: "basic.nack", 2: "basic.ack"}
    assert told_nothing(publisher)


def test_a_rejected_message_whose_record_is_damaged_is_nacked(
    broker: Appliance, publisher: Client, other: Client
) -> None:
    declare(publisher, "ack", "graves")
    queue = declare(publisher, "ack", dead_letter_exchange="", dead_letter_routing_key="graves")
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, b"damaged" * 100)
    tag = other.expect_message(channel=1).tag
    written(other)
    damage(broker, "queues/*/msgs.*", b"damaged" * 100)
    other.send_method(1, "basic.reject", delivery_tag=tag, requeue=False)
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}
    assert told_nothing(publisher)


@pytest.mark.parametrize("priorities", [False, True], ids=["plain", "priorities"])
def test_a_message_that_came_back_and_is_damaged_then_is_nacked(
    broker: Appliance, publisher: Client, other: Client, *, priorities: bool
) -> None:
    queue = declare(publisher, "ack", **({"max_priority": 2} if priorities else {}))
    other.call(1, "basic.consume", queue=queue, consumer_tag="c")
    publish(publisher, queue, b"damaged" * 100)
    tag = other.expect_message(channel=1).tag
    other.call(1, "basic.cancel", consumer_tag="c")
    written(other)
    other.send_method(1, "basic.reject", delivery_tag=tag, requeue=True)
    damage(broker, "queues/*/msgs.*", b"damaged" * 100)
    assert other.get(1, queue) is None
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}
    assert told_nothing(publisher)
    other.call(1, "queue.delete", queue=queue)
    assert told_nothing(publisher)


@pytest.mark.parametrize("end", ["delete", "purge", "take"])
def test_a_message_that_came_back_is_told_of_once(
    publisher: Client, other: Client, end: str
) -> None:
    publish(publisher, declare(publisher, "ack"), b"stays open")
    queue = declare(publisher, "ack")
    publish(publisher, queue, b"x")
    publisher.fence(1)
    got = other.get(1, queue)
    assert got is not None
    other.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=True)
    other.fence(1)
    if end == "purge":
        other.call(1, "queue.purge", queue=queue)
    elif end == "take":
        assert other.get(1, queue, no_ack=True) is not None
    other.call(1, "queue.delete", queue=queue)
    verdict = "basic.ack" if end == "take" else "basic.nack"
    assert publisher.expect_confirms(1, 2, first=2) == {2: verdict}
    assert told_nothing(publisher)


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "expired"])
def test_what_waits_for_a_full_dead_letter_queue_is_nacked_when_its_queue_goes(
    publisher: Client, other: Client, *, taken: bool
) -> None:
    declare(publisher, "write", "full", max_length=0, overflow="reject-publish")
    arguments = {} if taken else {"message_ttl": 1}
    queue = declare(
        publisher, "ack", dead_letter_exchange="", dead_letter_routing_key="full", **arguments
    )
    publish(publisher, queue, b"x")
    publisher.fence(1)
    if taken:
        got = other.get(1, queue)
        assert got is not None
        other.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
        other.fence(1)
    else:
        while other.call(1, "queue.declare", queue=queue, passive=True).message_count:
            pass
    assert told_nothing(publisher)
    other.call(1, "queue.delete", queue=queue)
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}
    assert told_nothing(publisher)


def test_a_dead_letter_that_another_queue_holds_is_told_of_once(
    publisher: Client, other: Client
) -> None:
    declare(publisher, "ack", "graves")
    queue = declare(publisher, "ack", dead_letter_exchange="", dead_letter_routing_key="graves")
    publish(publisher, queue, b"x")
    publisher.fence(1)
    got = other.get(1, queue)
    assert got is not None
    other.send_method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
    other.fence(1)
    other.call(1, "queue.delete", queue=queue)
    assert told_nothing(publisher)
    assert other.get(1, "graves", no_ack=True) is not None
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}
    assert told_nothing(publisher)
