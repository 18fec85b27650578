"""Consuming: deliveries, acknowledgements, prefetch, requeue, cancel."""

import re
import uuid

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client

Address = tuple[str, int]


@pytest.fixture
def queue(client: Client) -> str:
    """A new transient queue that any connection may use; it goes with the test broker."""
    name = f"consuming-{uuid.uuid4().hex[:8]}"
    client.call(1, "queue.declare", queue=name)
    return name


def fill(client: Client, queue: str, count: int, channel: int = 1) -> None:
    """Publishes bodies 1 to `count` and makes sure that the queue has them."""
    client.call(channel, "confirm.select")
    client.send(
        b"".join(raw.publish(channel, "", queue, str(n).encode()) for n in range(1, count + 1))
    )
    client.expect_confirms(channel, count)


def bodies(client: Client, count: int, channel: int = 1) -> list[int]:
    """The bodies of the next `count` deliveries."""
    return [int(message.body) for message in client.expect_messages(count, channel)]


def drain(client: Client, queue: str) -> list[int]:
    """Every ready message's body, taken out."""
    found = []
    while (got := client.get(1, queue, no_ack=True)) is not None:
        found.append(int(got.body))
    return found


def test_it_names_a_consumer_that_has_no_tag(client: Client, queue: str) -> None:
    tag = client.call(1, "basic.consume", queue=queue).consumer_tag
    assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22,32}", tag)
    client.publish(1, "", queue, b"x")
    assert client.expect_message(channel=1).method.consumer_tag == tag


def test_it_delivers_with_all_that_was_published(client: Client, queue: str) -> None:
    client.call(1, "queue.bind", queue=queue, exchange="amq.direct", routing_key=queue)
    client.call(1, "basic.consume", queue=queue, consumer_tag="c")
    client.publish(1, "amq.direct", queue, b"x", message_id="m")
    got = client.expect_message(channel=1)
    assert got.method.fields == {
        "consumer_tag": "c",
        "delivery_tag": 1,
        "redelivered": False,
        "exchange": "amq.direct",
        "routing_key": queue,
    }
    assert (got.properties, got.body) == ({"message_id": "m"}, b"x")


def test_get_tells_how_many_are_left(client: Client, queue: str) -> None:
    fill(client, queue, 3)
    for left in (2, 1, 0):
        got = client.get(1, queue)
        assert got is not None
        assert got.method.message_count == left
    assert client.get(1, queue) is None


def test_unacked_messages_come_back_when_the_channel_closes(client: Client, queue: str) -> None:
    fill(client, queue, 5)
    client.call(2, "channel.open")
    client.send_method(2, "basic.consume", queue=queue)
    client.expect("basic.consume-ok", 2)
    got = client.expect_messages(5, 2)
    client.send_method(2, "basic.ack", delivery_tag=2)
    client.call(2, "channel.close")
    assert [message.redelivered for message in got] == [False] * 5
    again = [client.get(1, queue, no_ack=True) for _ in range(4)]
    assert [(int(m.body), m.redelivered) for m in again if m] == [
        (1, True), (3, True), (4, True), (5, True),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["close", "cut", "reset"])
def test_unacked_messages_come_back_when_the_connection_ends(
    client: Client, amqp_address: Address, queue: str, end: str
) -> None:
    fill(client, queue, 3)
    consumer = Client.open(amqp_address)
    consumer.call(1, "basic.consume", queue=queue)
    assert bodies(consumer, 3) == [1, 2, 3]
    client.call(1, "basic.consume", queue=queue)
    getattr(consumer, end)()
    again = client.expect_messages(3, 1)
    assert [(int(m.body), m.redelivered) for m in again] == [(1, True), (2, True), (3, True)]


def test_acked_messages_do_not_come_back(client: Client, queue: str) -> None:
    fill(client, queue, 4)
    client.call(2, "channel.open")
    for _ in range(4):
        client.get(2, queue)
    client.send_method(2, "basic.ack", delivery_tag=3, multiple=True)
    client.call(2, "channel.close")
    assert drain(client, queue) == [4]


def test_ack_of_all_settles_all(client: Client, queue: str) -> None:
    fill(client, queue, 4)
    client.call(2, "channel.open")
    for _ in range(4):
        client.get(2, queue)
    client.send_method(2, "basic.ack", delivery_tag=0, multiple=True)
    client.call(2, "channel.close")
    assert drain(client, queue) == []


def test_a_tag_acked_twice_is_unknown(client: Client, queue: str) -> None:
    fill(client, queue, 1)
    client.get(1, queue)
    client.send_method(1, "basic.ack", delivery_tag=1)
    client.send_method(1, "basic.ack", delivery_tag=1)
    client.expect_channel_close(1, 406, 60, 80, "unknown delivery tag 1")


def test_a_tag_delivered_without_acks_is_unknown(client: Client, queue: str) -> None:
    fill(client, queue, 1)
    client.get(1, queue, no_ack=True)
    client.send_method(1, "basic.ack", delivery_tag=1)
    client.expect_channel_close(1, 406, 60, 80, "unknown delivery tag 1")


def test_rejected_messages_are_gone(client: Client, queue: str) -> None:
    fill(client, queue, 2)
    client.get(1, queue)
    client.send_method(1, "basic.reject", delivery_tag=1, requeue=False)
    assert drain(client, queue) == [2]


def test_nacked_messages_are_gone_up_to_the_tag(client: Client, queue: str) -> None:
    fill(client, queue, 4)
    for _ in range(3):
        client.get(1, queue)
    client.send_method(1, "basic.nack", delivery_tag=2, multiple=True, requeue=False)
    client.send_method(1, "basic.nack", delivery_tag=3, requeue=True)
    assert drain(client, queue) == [3, 4]


@pytest.mark.parametrize("method", ["reject", "nack"])
def test_a_requeued_message_takes_its_old_place(client: Client, queue: str, method: str) -> None:
    fill(client, queue, 5)
    for _ in range(3):
        client.get(1, queue)
    client.send_method(1, f"basic.{method}", delivery_tag=2, requeue=True)
    client.send_method(1, f"basic.{method}", delivery_tag=1, requeue=True)
    got = [client.get(1, queue) for _ in range(4)]
    assert [(int(m.body), m.redelivered) for m in got if m] == [
        (1, True), (2, True), (4, False), (5, False),
    ]  # fmt: skip


def test_many_requeued_out_of_order_come_in_order(client: Client, queue: str) -> None:
    fill(client, queue, 100)
    for _ in range(60):
        client.get(1, queue)
    tags = [(7 * tag) % 61 for tag in range(1, 61)]
    for tag in tags:
        if tag % 3:
            client.send_method(1, "basic.reject", delivery_tag=tag, requeue=True)
        else:
            client.send_method(1, "basic.ack", delivery_tag=tag)
    expected = [tag for tag in range(1, 61) if tag % 3] + list(range(61, 101))
    assert drain(client, queue) == expected


def test_a_requeued_message_goes_to_a_waiting_consumer(
    client: Client, other: Client, queue: str
) -> None:
    fill(client, queue, 1)
    client.get(1, queue)
    other.call(1, "basic.consume", queue=queue)
    client.send_method(1, "basic.reject", delivery_tag=1, requeue=True)
    got = other.expect_message(channel=1)
    assert got.redelivered


def test_recover_brings_all_back_in_order(client: Client, queue: str) -> None:
    fill(client, queue, 3)
    for _ in range(3):
        client.get(1, queue)
    client.call(1, "basic.recover", requeue=True)
    assert drain(client, queue) == [1, 2, 3]


def test_recover_async_is_not_answered(client: Client, queue: str) -> None:
    fill(client, queue, 1)
    client.get(1, queue)
    client.send_method(1, "basic.recover-async", requeue=True)
    assert drain(client, queue) == [1]


def test_prefetch_holds_deliveries_back(client: Client, queue: str) -> None:
    fill(client, queue, 10)
    client.call(1, "basic.qos", prefetch_count=3)
    client.call(1, "basic.consume", queue=queue)
    assert bodies(client, 3) == [1, 2, 3]
    client.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=1)
    assert bodies(client, 1) == [4]
    client.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=4, multiple=True)
    assert bodies(client, 3) == [5, 6, 7]
    client.fence(1)


def test_prefetch_does_not_count_what_needs_no_ack(client: Client, queue: str) -> None:
    fill(client, queue, 5)
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    assert bodies(client, 5) == [1, 2, 3, 4, 5]


def test_prefetch_does_not_hold_get_back(client: Client, queue: str) -> None:
    fill(client, queue, 4)
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.consume", queue=queue)
    assert bodies(client, 1) == [1]
    for body in (b"2", b"3", b"4"):
        got = client.get(1, queue)
        assert got is not None
        assert got.body == body


def test_prefetch_is_for_consumers_that_start_after_it(
    client: Client, other: Client, queue: str
) -> None:
    client.call(1, "basic.qos", prefetch_count=1)
    client.call(1, "basic.consume", queue=queue, consumer_tag="one")
    client.call(1, "basic.qos", prefetch_count=0)
    fill(other, queue, 3)
    assert bodies(client, 1) == [1]
    client.fence(1)
    client.call(1, "basic.consume", queue=queue, consumer_tag="all")
    assert bodies(client, 2) == [2, 3]


def test_each_consumer_has_a_prefetch_of_its_own(client: Client, other: Client, queue: str) -> None:
    client.call(1, "basic.qos", prefetch_count=2)
    client.call(1, "basic.consume", queue=queue, consumer_tag="a")
    client.call(1, "basic.consume", queue=queue, consumer_tag="b")
    fill(other, queue, 6)
    got = client.expect_messages(4, 1)
    assert sorted(message.method.consumer_tag for message in got) == ["a", "a", "b", "b"]
    client.fence(1)


def test_global_prefetch_is_for_the_whole_channel(
    client: Client, other: Client, queue: str
) -> None:
    client.call(1, "basic.qos", **{"prefetch_count": 3, "global": True})
    client.call(1, "basic.consume", queue=queue, consumer_tag="a")
    client.call(1, "basic.consume", queue=queue, consumer_tag="b")
    fill(other, queue, 8)
    assert bodies(client, 3) == [1, 2, 3]
    client.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=3, multiple=True)
    assert bodies(client, 3) == [4, 5, 6]
    client.fence(1)


def test_an_ack_under_a_global_prefetch_lets_every_queue_of_the_channel_go_on(
    client: Client, other: Client, queue: str
) -> None:
    second = client.call(1, "queue.declare", exclusive=True).queue
    client.call(1, "basic.qos", **{"prefetch_count": 2, "global": True})
    client.call(1, "basic.consume", queue=queue, consumer_tag="a")
    client.call(1, "basic.consume", queue=second, consumer_tag="b")
    fill(other, queue, 2)
    assert bodies(client, 2) == [1, 2]
    client.call(2, "channel.open")
    fill(client, second, 1, channel=2)
    client.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=2, multiple=True)
    assert client.expect_message(channel=1).method.consumer_tag == "b"


def test_global_and_own_prefetch_both_hold(
    client: Client, other: Client, queue: str, flavour: str
) -> None:
    if flavour == "rabbitmq":
        pytest.skip("3.10 lets the order of the two settings decide")
    client.call(1, "basic.qos", prefetch_count=2)
    client.call(1, "basic.qos", **{"prefetch_count": 3, "global": True})
    client.call(1, "basic.consume", queue=queue, consumer_tag="a")
    fill(other, queue, 8)
    assert bodies(client, 2) == [1, 2]
    client.fence(1)
    client.call(1, "basic.consume", queue=queue, consumer_tag="b")
    assert bodies(client, 1) == [3]
    client.fence(1)


def test_equal_consumers_take_turns(client: Client, queue: str) -> None:
    for tag in ("a", "b", "c"):
        client.call(1, "basic.consume", queue=queue, consumer_tag=tag, no_ack=True)
    client.call(2, "channel.open")
    client.call(2, "confirm.select")
    counts = {"a": 0, "b": 0, "c": 0}
    for _ in range(30):
        client.publish(2, "", queue, b"x")
        seen = set()
        while seen != {"basic.ack", "basic.deliver"}:
            got = client.read_method()
            seen.add(got.name)
            if got.name == "basic.deliver":
                counts[client.read_content(got).method.consumer_tag] += 1
    assert counts == {"a": 10, "b": 10, "c": 10}


def test_a_backlog_is_shared_among_equal_consumers(
    client: Client, other: Client, queue: str
) -> None:
    client.call(1, "basic.qos", prefetch_count=10)
    other.call(1, "basic.qos", prefetch_count=10)
    client.call(2, "channel.open")
    client.call(1, "basic.consume", queue=queue)
    other.call(1, "basic.consume", queue=queue)
    client.call(2, "confirm.select")
    client.send(b"".join(raw.publish(2, "", queue, b"1") for _ in range(20)))
    assert len(other.expect_messages(10, 1)) == 10


def test_a_cancelled_consumer_gets_nothing_more(client: Client, queue: str) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag="c")
    client.call(1, "basic.cancel", consumer_tag="c")
    client.publish(1, "", queue, b"1")
    client.fence(1)
    assert drain(client, queue) == [1]


def test_a_cancelled_consumer_may_still_ack(client: Client, queue: str) -> None:
    fill(client, queue, 2)
    client.send_method(1, "basic.consume", queue=queue, consumer_tag="c")
    client.expect("basic.consume-ok", 1)
    assert bodies(client, 2) == [1, 2]
    client.call(1, "basic.cancel", consumer_tag="c")
    client.send_method(1, "basic.ack", delivery_tag=1)
    client.send_method(1, "basic.nack", delivery_tag=2, requeue=True)
    assert drain(client, queue) == [2]


def test_a_tag_may_be_used_again_after_cancel(client: Client, queue: str) -> None:
    for _ in range(3):
        client.call(1, "basic.consume", queue=queue, consumer_tag="c")
        client.call(1, "basic.cancel", consumer_tag="c")


def test_consumers_are_told_when_their_queue_is_deleted(
    client: Client, other: Client, queue: str
) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag="c")
    other.call(1, "queue.delete", queue=queue)
    got = client.expect("basic.cancel", 1)
    assert (got.consumer_tag, got.nowait) == ("c", True)
    client.fence(1)


def test_consumers_that_cannot_be_told_are_not(
    other: Client, amqp_address: Address, queue: str
) -> None:
    with Client.open(amqp_address, client_properties={"capabilities": {}}) as plain:
        plain.call(1, "basic.consume", queue=queue, consumer_tag="c")
        other.call(1, "queue.delete", queue=queue)
        plain.fence(1)


def test_an_exclusive_consumer_leaves_the_queue_to_the_next(
    client: Client, other: Client, queue: str
) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag="c", exclusive=True)
    other.send_method(1, "basic.consume", queue=queue)
    other.expect_channel_close(1, 403, 60, 20)
    client.call(1, "basic.cancel", consumer_tag="c")
    other.call(1, "channel.open")
    other.call(1, "basic.consume", queue=queue, exclusive=True)


def test_unacked_messages_of_a_deleted_queue_may_be_acked(client: Client, queue: str) -> None:
    fill(client, queue, 2)
    client.get(1, queue)
    client.get(1, queue)
    client.call(1, "queue.delete", queue=queue)
    client.send_method(1, "basic.ack", delivery_tag=1)
    client.send_method(1, "basic.nack", delivery_tag=2, requeue=True)
    client.fence(1)


def test_acks_and_publishes_of_one_packet_all_count(client: Client, queue: str) -> None:
    fill(client, queue, 50)
    client.send_method(1, "basic.consume", queue=queue)
    client.expect("basic.consume-ok", 1)
    got = client.expect_messages(50, 1)
    client.send(
        b"".join(raw.method(1, "basic.ack", delivery_tag=message.tag) for message in got)
        + raw.publish(1, "", queue, b"51")
        + raw.method(1, "queue.declare", queue=queue, passive=True)
    )
    names = sorted(client.read_names(3))
    assert names == ["basic.ack", "basic.deliver", "queue.declare-ok"]


def test_a_slow_consumer_gets_everything_in_the_end(client: Client, queue: str) -> None:
    size, count = 100_000, 200
    client.call(2, "channel.open")
    client.call(1, "basic.consume", queue=queue, no_ack=True)
    data = bytes(size)
    for number in range(count):
        client.publish(2, "", queue, number.to_bytes(4) + data)
    got = client.expect_messages(count, 1)
    assert [int.from_bytes(message.body[:4]) for message in got] == list(range(count))
    assert all(len(message.body) == size + 4 for message in got)


def test_a_consumer_of_higher_priority_is_served_first(
    client: Client, other: Client, queue: str
) -> None:
    client.call(1, "basic.qos", prefetch_count=2)
    for tag, priority in (("low", -1), ("plain", None), ("high", 5)):
        arguments = {} if priority is None else {"x-priority": priority}
        client.call(1, "basic.consume", queue=queue, consumer_tag=tag, arguments=arguments)
    fill(other, queue, 6)
    got = client.expect_messages(6, 1)
    assert [message.method.consumer_tag for message in got] == [
        "high", "high", "plain", "plain", "low", "low",
    ]  # fmt: skip
    client.send_method(1, "basic.ack", delivery_tag=got[4].tag)
    client.send_method(1, "basic.ack", delivery_tag=got[0].tag)
    client.fence(1)
    other.publish(1, "", queue, b"7")
    assert client.expect_message(channel=1).method.consumer_tag == "high"


def test_a_consumers_priority_is_any_integer(client: Client, other: Client, queue: str) -> None:
    client.call(1, "basic.qos", prefetch_count=1)
    for priority in (-(2**63), 2**40, 2**31 - 1, 2**63 - 1, -(2**31) - 1):
        arguments = {"x-priority": priority}
        tag = str(priority)
        client.call(1, "basic.consume", queue=queue, consumer_tag=tag, arguments=arguments)
    fill(other, queue, 5)
    got = [int(message.method.consumer_tag) for message in client.expect_messages(5, 1)]
    assert got == sorted(got, reverse=True)


def test_no_local_is_ignored(client: Client, queue: str) -> None:
    client.call(1, "basic.consume", queue=queue, no_local=True)
    client.publish(1, "", queue, b"from the same connection")
    assert client.expect_message(channel=1).body == b"from the same connection"


def test_a_channel_has_any_number_of_consumers(client: Client, other: Client, queue: str) -> None:
    client.call(1, "basic.qos", prefetch_count=1)
    tags = [client.call(1, "basic.consume", queue=queue).consumer_tag for _ in range(300)]
    fill(other, queue, 300)
    got = client.expect_messages(300, 1)
    assert {message.method.consumer_tag for message in got} == set(tags)
