"""Confirm on ack (x-confirm-on): the publisher's confirm waits for the consumers.

The cells of the table in docs/confirm-on-ack.md, but for power cuts and transactions.
"""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance

MODES = ("ack", "ack-lean")
both = pytest.mark.parametrize("mode", MODES)


def declare(client: Client, mode: str, queue: str = "", **arguments: Any) -> str:
    name = queue or f"held-{uuid.uuid4().hex[:8]}"
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.call(
        1, "queue.declare", queue=name, durable=True, arguments={"x-confirm-on": mode} | table
    )
    return name


def publish(client: Client, queue: str, *bodies: bytes, **values: Any) -> None:
    client.send(b"".join(raw.publish(1, "", queue, body, delivery_mode=2, **values)
                         for body in bodies))  # fmt: skip


def told_nothing(client: Client) -> bool:
    """Whether the next thing the broker says on channel 1 is the answer to a question asked now."""
    client.fence(1)
    return True


@pytest.fixture
def publisher(client: Client) -> Client:
    """A connection whose channel 1 publishes with confirms."""
    client.call(1, "confirm.select")
    return client


@both
def test_it_acks_when_the_consumer_acked(publisher: Client, other: Client, mode: str) -> None:
    queue = declare(publisher, mode)
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    tag = other.expect_message(channel=1).tag
    assert told_nothing(publisher)
    other.send_method(1, "basic.ack", delivery_tag=tag)
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}


@both
def test_it_waits_for_a_consumer(publisher: Client, other: Client, mode: str) -> None:
    queue = declare(publisher, mode)
    publish(publisher, queue, b"1", b"2", b"3")
    assert told_nothing(publisher)
    other.call(1, "basic.consume", queue=queue)
    last = other.expect_messages(3, channel=1)[-1].tag
    other.send_method(1, "basic.ack", delivery_tag=last, multiple=True)
    assert publisher.expect_confirms(1, 3) == dict.fromkeys((1, 2, 3), "basic.ack")


@both
def test_it_acks_what_an_auto_ack_consumer_or_get_took(
    publisher: Client, other: Client, mode: str
) -> None:
    queue = declare(publisher, mode)
    publish(publisher, queue, b"got")
    assert told_nothing(publisher)
    assert other.get(1, queue, no_ack=True) is not None
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}
    other.call(1, "basic.consume", queue=queue, no_ack=True)
    publish(publisher, queue, b"consumed")
    other.expect_message(channel=1)
    assert publisher.expect_confirms(1, 2, first=2) == {2: "basic.ack"}


def test_it_stays_open_when_the_consumer_requeues(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack")
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    tag = other.expect_message(channel=1).tag
    other.send_method(1, "basic.nack", delivery_tag=tag, requeue=True)
    again = other.expect_message(channel=1)
    assert again.redelivered
    assert told_nothing(publisher)
    other.send_method(1, "basic.ack", delivery_tag=again.tag)
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}


def test_it_nacks_when_a_lean_consumer_requeues(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack-lean")
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    tag = other.expect_message(channel=1).tag
    other.send_method(1, "basic.nack", delivery_tag=tag, requeue=True)
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}


@both
def test_it_nacks_what_a_consumer_rejects(publisher: Client, other: Client, mode: str) -> None:
    queue = declare(publisher, mode)
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    tag = other.expect_message(channel=1).tag
    other.send_method(1, "basic.reject", delivery_tag=tag, requeue=False)
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}


@pytest.mark.parametrize("target", ["write", "ack"])
def test_it_passes_the_confirm_on_to_the_dead_letter_queue(
    publisher: Client, other: Client, name: str, target: str
) -> None:
    declare(publisher, target, f"{name}-graves")
    queue = declare(
        publisher, "ack", name,
        dead_letter_exchange="", dead_letter_routing_key=f"{name}-graves",
    )  # fmt: skip
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    tag = other.expect_message(channel=1).tag
    other.send_method(1, "basic.reject", delivery_tag=tag, requeue=False)
    if target == "ack":
        other.call(1, "basic.consume", queue=f"{name}-graves")
        tag = other.expect_message(channel=1).tag
        assert told_nothing(publisher)
        other.send_method(1, "basic.ack", delivery_tag=tag)
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}


@both
def test_it_nacks_what_expires(publisher: Client, mode: str) -> None:
    queue = declare(publisher, mode, message_ttl=10)
    publish(publisher, queue, b"x")
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}
    queue = declare(publisher, mode, message_ttl=0)
    publish(publisher, queue, b"x")
    assert publisher.expect_confirms(1, 2, first=2) == {2: "basic.nack"}


@pytest.mark.parametrize("ttl", [0, 1])
def test_it_nacks_what_expires_and_has_no_way_as_a_dead_letter(publisher: Client, ttl: int) -> None:
    queue = declare(publisher, "ack", message_ttl=ttl, dead_letter_exchange="nowhere")
    publish(publisher, queue, b"x")
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}


@pytest.mark.parametrize("expiration", ["0", "1"])
def test_what_expires_at_once_waits_for_the_consumer_of_its_dead_letter(
    publisher: Client, other: Client, expiration: str
) -> None:
    behind = declare(publisher, "ack")
    queue = declare(publisher, "ack", dead_letter_exchange="", dead_letter_routing_key=behind)
    publish(publisher, queue, b"x", expiration=expiration)
    other.call(1, "basic.consume", queue=behind)
    tag = other.expect_message(channel=1).tag
    assert told_nothing(publisher)
    other.send_method(1, "basic.ack", delivery_tag=tag)
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}


@both
def test_it_nacks_dropped_heads(publisher: Client, mode: str) -> None:
    queue = declare(publisher, mode, max_length=1)
    publish(publisher, queue, b"1", b"2")
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}
    assert told_nothing(publisher)


@both
def test_it_nacks_what_is_purged_or_deleted(publisher: Client, other: Client, mode: str) -> None:
    queue = declare(publisher, mode)
    publish(publisher, queue, b"1", b"2")
    publisher.fence(1)
    assert other.call(1, "queue.purge", queue=queue).message_count == 2
    assert publisher.expect_confirms(1, 2) == dict.fromkeys((1, 2), "basic.nack")
    publish(publisher, queue, b"3")
    publisher.fence(1)
    other.call(1, "queue.delete", queue=queue)
    assert publisher.expect_confirms(1, 3, first=3) == {3: "basic.nack"}


def test_it_nacks_a_backlog_on_disk_that_is_purged(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack")
    publish(publisher, queue, *(b"%d" % n * 100 for n in range(9000)))
    publisher.fence(1)
    other.call(1, "queue.purge", queue=queue)
    assert set(publisher.expect_confirms(1, 9000).values()) == {"basic.nack"}


def test_it_stays_open_when_the_consumer_dies(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack")
    other.call(2, "channel.open")
    other.call(2, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    other.expect_message(channel=2)
    other.call(2, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    assert told_nothing(publisher)
    again = other.get(1, queue)
    assert again is not None
    assert again.redelivered
    other.send_method(1, "basic.ack", delivery_tag=again.tag)
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}


def test_it_nacks_when_a_lean_consumer_dies(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack-lean")
    other.call(2, "channel.open")
    other.call(2, "basic.consume", queue=queue)
    publish(publisher, queue, b"x")
    other.expect_message(channel=2)
    other.call(2, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}


@both
def test_it_acks_what_is_unroutable_and_nacks_what_is_refused(publisher: Client, mode: str) -> None:
    queue = declare(publisher, mode, max_length=1, overflow="reject-publish")
    publish(publisher, queue, b"open")
    publisher.publish(1, "", "nowhere", b"x", mandatory=True)
    publish(publisher, queue, b"refused")
    returned = publisher.expect_message("basic.return", channel=1)
    assert returned.body == b"x"
    assert publisher.expect_confirms(1, 3, first=2) == {2: "basic.ack", 3: "basic.nack"}


@both
def test_it_waits_for_every_queue(publisher: Client, other: Client, name: str, mode: str) -> None:
    publisher.call(1, "exchange.declare", exchange=name, type="fanout")
    queues = [declare(publisher, mode), declare(publisher, "ack"), declare(publisher, "write")]
    for queue in queues:
        publisher.call(1, "queue.bind", queue=queue, exchange=name)
    publisher.publish(1, name, "", b"x", delivery_mode=2)
    for queue in queues[:2]:
        assert told_nothing(publisher)
        got = other.get(1, queue)
        assert got is not None
        other.send_method(1, "basic.ack", delivery_tag=got.tag)
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}


@both
def test_it_nacks_once_if_one_of_several_queues_loses_it(
    publisher: Client, other: Client, name: str, mode: str
) -> None:
    publisher.call(1, "exchange.declare", exchange=name, type="fanout")
    queues = [declare(publisher, mode) for _ in range(3)]
    for queue in queues:
        publisher.call(1, "queue.bind", queue=queue, exchange=name)
    publisher.publish(1, name, "", b"x", delivery_mode=2)
    for queue, verdict in zip(queues, ("basic.reject", "basic.ack", "basic.reject"), strict=True):
        got = other.get(1, queue)
        assert got is not None
        fields = {"requeue": False} if verdict == "basic.reject" else {}
        other.send_method(1, verdict, delivery_tag=got.tag, **fields)
    other.fence(1)
    assert publisher.expect_confirms(1, 1) == {1: "basic.nack"}
    assert told_nothing(publisher)


def test_it_never_covers_an_open_tag(publisher: Client, other: Client) -> None:
    held, written = declare(publisher, "ack"), declare(publisher, "write")
    publish(publisher, written, b"1")
    publish(publisher, held, b"2")
    publish(publisher, written, b"3", b"4")
    assert publisher.expect_confirms(1, 1) == {1: "basic.ack"}
    for tag in (3, 4):
        publisher.expect("basic.ack", 1, delivery_tag=tag, multiple=False)
    got = other.get(1, held)
    assert got is not None
    other.send_method(1, "basic.ack", delivery_tag=got.tag)
    publisher.expect("basic.ack", 1, delivery_tag=2)
    publish(publisher, written, b"5")
    publisher.expect("basic.ack", 1, delivery_tag=5)


def test_it_confirms_in_any_order(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack")
    other.call(1, "basic.consume", queue=queue)
    publish(publisher, queue, *(b"%d" % n for n in range(100)))
    tags = [message.tag for message in other.expect_messages(100, channel=1)]
    for tag in tags[::-1]:
        other.send_method(1, "basic.ack", delivery_tag=tag)
    assert publisher.expect_confirms(1, 100) == dict.fromkeys(range(1, 101), "basic.ack")


def test_it_drops_the_answer_for_a_channel_that_is_gone(publisher: Client, other: Client) -> None:
    queue = declare(publisher, "ack")
    publish(publisher, queue, b"x")
    publisher.call(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    publisher.call(1, "channel.open")
    publisher.call(1, "confirm.select")
    got = other.get(1, queue)
    assert got is not None
    other.send_method(1, "basic.ack", delivery_tag=got.tag)
    other.fence(1)
    assert told_nothing(publisher)


def test_it_resolves_nothing_of_an_earlier_start(make_broker: Callable[..., Appliance]) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        declare(client, "ack", "q")
        client.call(1, "confirm.select")
        publish(client, "q", b"old")
        # A durable declare is answered after a round, so the record is in the file, too.
        declare(client, "write", "fence")
        broker.kill()
    broker.start()
    address = (broker.host, broker.amqp_port)
    with Client.open(address) as client, Client.open(address) as other:
        client.call(1, "confirm.select")
        publish(client, "q", b"new")
        old = other.get(1, "q")
        assert old is not None
        assert old.body == b"old"
        other.send_method(1, "basic.ack", delivery_tag=old.tag)
        other.fence(1)
        assert told_nothing(client)
        new = other.get(1, "q")
        assert new is not None
        other.send_method(1, "basic.ack", delivery_tag=new.tag)
        assert client.expect_confirms(1, 1) == {1: "basic.ack"}


def test_it_says_that_it_can(amqp_address: tuple[str, int]) -> None:
    with Client(amqp_address) as client:
        client.start()
        assert client.server_properties["capabilities"]["confirm_on_ack"] is True


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"x-confirm-on": "sometimes"}, "invalid value 'sometimes'"),
        ({"x-confirm-on": 1}, "{unacceptable_type,signedint}"),
        ({"x-confirm-on": "ack-lean", "x-dead-letter-exchange": "x"}, "x-dead-letter-exchange"),
        ({"x-confirm-on": "ack-lean", "x-max-priority": 3}, "x-max-priority"),
        ({"x-confirm-on": "ack-lean", "x-delivery-limit": 3}, "x-delivery-limit"),
        ({"x-confirm-on": "ack-lean", "x-queue-type": "quorum"}, "with 'x-queue-type'"),
    ],
)
def test_it_refuses_wrong_modes(
    client: Client, name: str, arguments: dict[str, Any], wrong: str
) -> None:
    client.send_method(1, "queue.declare", queue=name, arguments=arguments)
    assert wrong in client.expect_channel_close(1, 406, 50, 10).reply_text
