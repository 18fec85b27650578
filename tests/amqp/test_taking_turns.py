"""Which consumer gets a message: equals in turn, higher priorities first, one at a time where the
queue wants it so, and nobody beside an exclusive one."""

from collections import Counter
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.limited_queues import fill, limited, ready
from tests.amqp.raw import Client
from tests.amqp.test_pausing import row
from tests.appliance import Appliance

MESSAGES = 10_000


def send(client: Client, queue: str, count: int) -> None:
    """Publishes so many messages in packets of 500, on channel 1."""
    for start in range(0, count, 500):
        one = raw.publish(1, "", queue, b"x" * 20)
        client.send(one * min(500, count - start))


def consume(client: Client, queue: str, tag: str, **values: Any) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag=tag, **values)


def shares(client: Client, count: int) -> Counter[str]:
    """How many of the next `count` deliveries each consumer got."""
    found: Counter[str] = Counter()
    for _ in range(count):
        found[client.expect_message(channel=1).method.consumer_tag] += 1
    return found


def spread(counts: Counter[str]) -> int:
    return max(counts.values()) - min(counts.values())


@pytest.mark.parametrize("backlog", [False, True])
def test_ten_thousand_messages_are_shared_to_within_one(
    client: Client, other: Client, backlog: bool
) -> None:
    queue = limited(client)
    consumes = b"".join(
        raw.method(1, "basic.consume", queue=queue, consumer_tag=f"c{n}", no_ack=True, nowait=True)
        for n in range(7)
    )
    for _ in range(20):
        if backlog:
            send(other, queue, MESSAGES)
            other.fence(1)
        client.send(consumes)
        if not backlog:
            client.fence(1)
            send(other, queue, MESSAGES)
        counts = shares(client, MESSAGES)
        if len(counts) == 7 and spread(counts) <= 1:
            return
        # With a backlog all have to come in one turn, or the first have a start. A busy machine may
        # take their packet apart in two.
        assert backlog
        for n in range(7):
            client.call(1, "basic.cancel", consumer_tag=f"c{n}")
    pytest.fail(f"in 20 tries: {counts}")


def test_consumers_of_several_connections_share_to_within_one(
    client: Client, amqp_address: tuple[str, int]
) -> None:
    queue = limited(client)
    consumers = [Client.open(amqp_address) for _ in range(4)]
    for number, each in enumerate(consumers):
        each.call(1, "basic.qos", prefetch_count=0)
        consume(each, queue, f"c{number}")
    for _ in range(MESSAGES // 1000):
        send(client, queue, 1000)
        # Each has room for all of these.
        for each in consumers:
            got = each.expect_messages(250, 1)
            each.send_method(1, "basic.ack", delivery_tag=got[-1].tag, multiple=True)
    for each in consumers:
        each.fence(1)
        each.close()
    assert ready(client, queue) == 0


def test_a_consumer_whose_prefetch_is_full_is_passed_over(client: Client, other: Client) -> None:
    queue = limited(client)
    client.call(1, "basic.qos", prefetch_count=3)
    consume(client, queue, "full")
    for number in range(3):
        consume(client, queue, f"c{number}", no_ack=True)
    send(other, queue, 3003)
    counts = shares(client, 3003)
    assert counts.pop("full") == 3
    assert sum(counts.values()) == 3000
    assert spread(counts) <= 1
    client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
    client.fence(1)
    send(other, queue, 400)
    counts = shares(client, 400)
    assert counts.pop("full") == 3
    assert spread(counts) <= 1


def test_those_below_a_higher_priority_share_what_it_leaves(client: Client, other: Client) -> None:
    queue = limited(client)
    client.call(1, "basic.qos", prefetch_count=1)
    consume(client, queue, "high", arguments={"x-priority": 9})
    for number in range(3):
        consume(client, queue, f"low{number}", no_ack=True)
    counts: Counter[str] = Counter()
    for _ in range(30):
        other.send(raw.publish(1, "", queue, b"x") * 2)
        first, second = client.expect_messages(2, 1)
        assert first.method.consumer_tag == "high"
        counts[second.method.consumer_tag] += 1
        client.send_method(1, "basic.ack", delivery_tag=first.tag)
        client.fence(1)
    assert counts == {"low0": 10, "low1": 10, "low2": 10}


def test_turns_go_on_where_they_were_when_consumers_come_and_go(
    client: Client, other: Client
) -> None:
    queue = limited(client)
    for tag in "abcd":
        consume(client, queue, tag, no_ack=True)

    def order(count: int) -> str:
        send(other, queue, count)
        return "".join(m.method.consumer_tag for m in client.expect_messages(count, 1))

    assert order(6) == "abcdab"
    client.call(1, "basic.cancel", consumer_tag="b")
    assert order(4) == "cdac"
    client.call(1, "basic.cancel", consumer_tag="a")
    assert order(3) == "dcd"
    consume(client, queue, "e", no_ack=True)
    assert sorted(order(3)) == ["c", "d", "e"]
    client.call(1, "basic.cancel", consumer_tag="c")
    client.call(1, "basic.cancel", consumer_tag="d")
    assert order(2) == "ee"


def test_the_active_consumer_keeps_its_turn_while_its_prefetch_is_full(
    client: Client, other: Client
) -> None:
    queue = limited(client, x_single_active_consumer=True)
    client.call(1, "basic.qos", prefetch_count=2)
    consume(client, queue, "active")
    consume(other, queue, "waiting")
    fill(other, queue, b"1", b"2", b"3")
    assert [m.body for m in client.expect_messages(2, 1)] == [b"1", b"2"]
    other.fence(1)
    assert ready(other, queue) == 1
    client.send_method(1, "basic.ack", delivery_tag=1)
    assert client.expect_message(channel=1).body == b"3"


@pytest.mark.parametrize("end", ["cancel", "channel", "cut"])
def test_the_next_in_line_takes_over_however_the_active_one_ends(
    client: Client, other: Client, amqp_address: tuple[str, int], end: str
) -> None:
    queue = limited(client, x_single_active_consumer=True)
    active = Client.open(amqp_address)
    consume(active, queue, "active")
    consume(client, queue, "next", arguments={"x-priority": 0})
    # Priorities change nothing: who came first is next.
    consume(other, queue, "last", arguments={"x-priority": 9})
    fill(other, queue, b"1")
    assert active.expect_message(channel=1).body == b"1"
    if end == "cancel":
        active.call(1, "basic.cancel", consumer_tag="active")
        fill(other, queue, b"2")
        assert client.expect_message(channel=1).body == b"2"
    elif end == "channel":
        active.call(1, "channel.close")
        assert client.expect_message(channel=1).body == b"1"
    else:
        active.cut()
        assert client.expect_message(channel=1).body == b"1"
    other.fence(1)


def test_a_queue_with_a_single_active_consumer_has_no_exclusive_one(client: Client) -> None:
    queue = limited(client, x_single_active_consumer=True)
    client.send_method(1, "basic.consume", queue=queue, exclusive=True)
    client.expect_channel_close(1, 403, 60, 20, "in exclusive use")


def behind_a_sync(name: str) -> bytes:
    """A durable declaration on channel 1, which what follows on the channel waits for."""
    return raw.method(1, "queue.declare", queue=f"{name}-sync", durable=True)


def test_an_exclusive_consumer_counts_from_its_request_on(client: Client, name: str) -> None:
    """Its consume-ok waits for the disk; another request in the same packet comes second."""
    queue = limited(client)
    client.call(2, "channel.open")
    client.send(
        behind_a_sync(name)
        + raw.method(1, "basic.consume", queue=queue, consumer_tag="first", exclusive=True)
        + raw.method(2, "basic.consume", queue=queue, consumer_tag="second", exclusive=True)
    )
    client.expect_channel_close(2, 403, 60, 20, "in exclusive use")
    client.expect("queue.declare-ok", 1)
    client.expect("basic.consume-ok", 1)
    client.call(1, "basic.cancel", consumer_tag="first")
    client.call(2, "channel.open")
    client.call(2, "basic.consume", queue=queue, exclusive=True)
    client.call(1, "queue.delete", queue=f"{name}-sync")


def test_an_auto_delete_queue_stays_for_a_consumer_that_is_about_to_start(
    client: Client, name: str
) -> None:
    client.call(1, "queue.declare", queue=name, auto_delete=True)
    client.call(2, "channel.open")
    client.call(2, "basic.consume", queue=name, consumer_tag="old")
    client.send(
        behind_a_sync(name)
        + raw.method(1, "basic.consume", queue=name, consumer_tag="new", no_ack=True)
        + raw.method(2, "basic.cancel", consumer_tag="old")
    )
    names = {client.read_method().name for _ in range(3)}
    assert names == {"basic.cancel-ok", "queue.declare-ok", "basic.consume-ok"}
    client.publish(1, "", name, b"x")
    assert client.expect_message(channel=1).method.consumer_tag == "new"
    client.call(1, "basic.cancel", consumer_tag="new")
    client.send_method(1, "queue.declare", queue=name, passive=True)
    client.expect_channel_close(1, 404, 50, 10)
    client.call(2, "queue.delete", queue=f"{name}-sync")


def test_a_consumer_that_never_started_is_told_of_its_queues_end(client: Client, name: str) -> None:
    queue = limited(client)
    client.call(2, "channel.open")
    client.send(
        behind_a_sync(name)
        + raw.method(1, "basic.consume", queue=queue, consumer_tag="new")
        + raw.method(2, "queue.delete", queue=queue)
    )
    client.expect("queue.delete-ok", 2)
    for method in ("queue.declare-ok", "basic.consume-ok", "basic.cancel"):
        client.expect(method, 1)
    client.call(1, "queue.delete", queue=f"{name}-sync")


def test_a_queue_with_a_consumer_about_to_start_is_in_use(client: Client, name: str) -> None:
    queue = limited(client)
    client.call(2, "channel.open")
    client.send(
        behind_a_sync(name)
        + raw.method(1, "basic.consume", queue=queue, consumer_tag="new")
        + raw.method(2, "queue.delete", queue=queue, if_unused=True)
    )
    client.expect_channel_close(2, 406, 50, 40, "in use")
    client.expect("queue.declare-ok", 1)
    client.expect("basic.consume-ok", 1)
    client.call(1, "queue.delete", queue=f"{name}-sync")


def test_a_consumer_cancelled_before_it_started_gets_nothing(client: Client, name: str) -> None:
    queue = limited(client)
    fill(client, queue, b"x")
    client.send(
        behind_a_sync(name)
        + raw.method(1, "basic.consume", queue=queue, consumer_tag="new")
        + raw.method(1, "basic.cancel", consumer_tag="new")
    )
    for method in ("queue.declare-ok", "basic.consume-ok", "basic.cancel-ok"):
        client.expect(method, 1)
    answer = client.call(1, "queue.declare", queue=queue, passive=True)
    assert (answer.message_count, answer.consumer_count) == (1, 0)
    client.call(1, "queue.delete", queue=f"{name}-sync")


def test_the_api_tells_which_consumer_is_active(
    shared_broker: Appliance, client: Client, other: Client
) -> None:
    queue = limited(client, x_single_active_consumer=True)
    plain = limited(client)
    consume(client, queue, "one")
    consume(other, queue, "two")
    consume(other, plain, "three")

    def seen(name: str) -> dict[str, tuple[bool, str]]:
        consumers = row(shared_broker, name)["consumer_details"]
        return {one["consumer_tag"]: (one["active"], one["activity_status"]) for one in consumers}

    assert row(shared_broker, queue)["single_active_consumer_tag"] == "one"
    assert seen(queue) == {"one": (True, "single_active"), "two": (False, "waiting")}
    assert row(shared_broker, plain)["single_active_consumer_tag"] is None
    assert seen(plain) == {"three": (True, "up")}
    client.call(1, "basic.cancel", consumer_tag="one")
    assert seen(queue) == {"two": (True, "single_active")}
