"""What a client sends in one packet has the effects it has one by one: what was published, acked or
requeued before a method that looks at a queue is delivered before it.

The expectations are RabbitMQ's, which sends the answers of some methods before the deliveries that
were decided first; here they stand in the order of what happened.
"""

from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.limited_queues import limited
from tests.amqp.raw import Client, method


def publishes(queue: str, *bodies: str, channel: int = 1, **values: Any) -> bytes:
    return b"".join(raw.publish(channel, "", queue, body.encode(), **values) for body in bodies)


def told(client: Client, count: int, flavour: str = "leveret") -> list[str]:
    """The next `count` methods: deliveries and gets as their bodies, with `!` if redelivered, the
    others by name with a count of messages where they have one."""
    found = []
    for _ in range(count):
        got = client.read_method()
        if got.name in ("basic.deliver", "basic.get-ok"):
            text = client.read_content(got).body.decode() + "!" * got.redelivered
            found.append(text if got.name == "basic.deliver" else f"got {text}")
        elif "message_count" in got.fields:
            found.append(f"{got.name} {got.message_count}")
        else:
            found.append(got.name)
    # There the answer of a call to the queue overtakes its deliveries.
    return sorted(found) if flavour == "rabbitmq" else found


def consume(client: Client, queue: str, tag: str = "c", **values: Any) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag=tag, **values)


def held(client: Client, queue: str, *bodies: str) -> None:
    """A consumer with one message at a time has the first body; the others are ready."""
    client.call(1, "basic.qos", prefetch_count=1)
    consume(client, queue)
    client.send(publishes(queue, *bodies))
    assert told(client, 1) == [bodies[0]]
    client.fence(1)


LOOKS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("basic.get", {}, ["basic.get-empty"]),
    ("basic.cancel", {"consumer_tag": "c"}, ["basic.cancel-ok"]),
    ("queue.purge", {}, ["queue.purge-ok 0"]),
    ("queue.delete", {}, ["basic.cancel", "queue.delete-ok 0"]),
    ("queue.delete", {"if_empty": True}, ["basic.cancel", "queue.delete-ok 0"]),
    ("queue.declare", {"passive": True}, ["queue.declare-ok 0"]),
    ("queue.declare", {}, ["queue.declare-ok 0"]),
    ("channel.close", {}, ["channel.close-ok"]),
    ("basic.recover", {"requeue": True}, ["basic.recover-ok"]),
    ("basic.qos", {"prefetch_count": 1, "global": True}, ["basic.qos-ok"]),
]
CLOSING = {"reply_code": 200, "reply_text": "bye", "class_id": 0, "method_id": 0}


@pytest.mark.parametrize(("name", "fields", "answers"), LOOKS)
def test_what_was_published_is_delivered_before_a_method_that_looks_at_its_queue(
    client: Client, name: str, fields: dict[str, Any], answers: list[str], flavour: str
) -> None:
    queue = limited(client)
    consume(client, queue, no_ack=True)
    if name == "channel.close":
        fields = CLOSING
    elif name in ("basic.get",) or name.startswith("queue."):
        fields = {**fields, "queue": queue}
    client.send(publishes(queue, "1", "2", "3") + method(1, name, **fields))
    expected = ["1", "2", "3", *answers]
    got = told(client, len(expected), flavour)
    assert sorted(got) == sorted(expected)
    if flavour != "rabbitmq":
        # Which of cancel and delete-ok comes first is another matter.
        assert got[:3] == ["1", "2", "3"]


def test_the_consumers_of_another_connection_come_first_too(client: Client, other: Client) -> None:
    queue = limited(client)
    consume(other, queue, no_ack=True)
    client.send(publishes(queue, "1") + method(1, "basic.get", queue=queue))
    assert told(client, 1) == ["basic.get-empty"]
    assert told(other, 1) == ["1"]


def test_what_a_cancelled_consumer_was_sent_is_its_own(client: Client) -> None:
    queue = limited(client)
    client.call(1, "basic.qos", prefetch_count=2)
    consume(client, queue)
    client.send(publishes(queue, *"12345") + method(1, "basic.cancel", consumer_tag="c"))
    assert told(client, 3) == ["1", "2", "basic.cancel-ok"]
    client.send(method(1, "basic.ack", delivery_tag=0, multiple=True))
    client.send(method(1, "queue.purge", queue=queue))
    assert told(client, 1) == ["queue.purge-ok 3"]


def test_an_ack_makes_room_for_the_consumer_before_a_get(client: Client, flavour: str) -> None:
    queue = limited(client)
    held(client, queue, "1", "2")
    client.send(method(1, "basic.ack", delivery_tag=1) + method(1, "basic.get", queue=queue))
    assert told(client, 2, flavour) == ["2", "basic.get-empty"]


def test_an_ack_makes_room_under_the_limit_of_the_channel_before_a_get(
    client: Client, flavour: str
) -> None:
    if flavour == "rabbitmq":
        pytest.skip("there another process counts, and the get may come first")
    queue = limited(client)
    client.call(1, "basic.qos", **{"prefetch_count": 1, "global": True})
    consume(client, queue)
    client.send(publishes(queue, "1", "2"))
    assert told(client, 1) == ["1"]
    client.fence(1)
    client.send(method(1, "basic.ack", delivery_tag=1) + method(1, "basic.get", queue=queue))
    assert told(client, 2, flavour) == ["2", "basic.get-empty"]


def test_a_raised_limit_of_the_channel_counts_before_a_get(client: Client) -> None:
    queue = limited(client)
    client.call(1, "basic.qos", **{"prefetch_count": 1, "global": True})
    consume(client, queue)
    client.send(publishes(queue, "1", "2", "3"))
    assert told(client, 1) == ["1"]
    client.fence(1)
    client.send(
        method(1, "basic.qos", **{"prefetch_count": 2, "global": True})
        + method(1, "basic.get", queue=queue)
    )
    assert sorted(told(client, 3)) == ["2", "basic.qos-ok", "got 3"]


@pytest.mark.parametrize("requeue", ["reject", "nack"])
def test_what_is_requeued_goes_to_the_consumer_before_a_get(
    client: Client, requeue: str, flavour: str
) -> None:
    queue = limited(client)
    held(client, queue, "1", "2")
    again = method(1, f"basic.{requeue}", delivery_tag=1, requeue=True)
    client.send(again + method(1, "basic.get", queue=queue))
    assert told(client, 2, flavour) == ["1!", "got 2"]


def test_what_was_published_goes_before_what_is_requeued_behind_it(client: Client) -> None:
    queue = limited(client)
    consume(client, queue)
    client.send(publishes(queue, "1", "2", "3"))
    assert told(client, 3) == ["1", "2", "3"]
    nack = method(1, "basic.nack", delivery_tag=3, multiple=True, requeue=True)
    client.send(publishes(queue, "4") + nack)
    assert told(client, 4) == ["4", "1!", "2!", "3!"]


def test_each_of_two_nacks_counts_by_itself(client: Client) -> None:
    queue = limited(client)
    consume(client, queue)
    client.send(publishes(queue, "1", "2", "3"))
    assert told(client, 3) == ["1", "2", "3"]
    client.send(
        method(1, "basic.nack", delivery_tag=3, requeue=True)
        + method(1, "basic.nack", delivery_tag=1, requeue=True)
    )
    assert told(client, 2) == ["3!", "1!"]


@pytest.mark.parametrize("recover", ["basic.recover", "basic.recover-async"])
def test_recover_takes_back_what_the_client_may_know_of(client: Client, recover: str) -> None:
    queue = limited(client)
    consume(client, queue)
    client.send(publishes(queue, "1", "2"))
    assert told(client, 2) == ["1", "2"]
    client.send(publishes(queue, "3") + method(1, recover, requeue=True))
    count = 4 if recover == "basic.recover" else 3
    assert [each for each in told(client, count) if each.rstrip("!").isdigit()] == ["3", "1!", "2!"]


def test_a_length_limit_counts_at_the_requeue(client: Client) -> None:
    queue = limited(client, x_max_length=1)
    client.send(publishes(queue, "1"))
    assert client.get(1, queue) is not None
    client.send(publishes(queue, "2"))
    client.send(
        method(1, "basic.nack", delivery_tag=1, requeue=True)
        + method(1, "basic.get", queue=queue)
        + method(1, "basic.get", queue=queue)
    )
    assert told(client, 2) == ["got 2", "basic.get-empty"]


@pytest.mark.parametrize("behind", [(), ("3",)])
def test_a_length_limit_counts_at_the_requeue_before_consumers(
    client: Client, behind: tuple[str, ...]
) -> None:
    queue = limited(client, x_max_length=1)
    held(client, queue, "1", "2")
    nack = method(1, "basic.nack", delivery_tag=1, requeue=True)
    client.send(nack + publishes(queue, *behind))
    assert told(client, 1) == ["2"]
    client.fence(1)
    client.call(1, "basic.cancel", consumer_tag="c")
    assert client.call(1, "queue.purge", queue=queue).message_count == len(behind)


def test_a_new_consumer_gets_nothing_of_what_was_published_for_those_before_it(
    client: Client,
) -> None:
    queue = limited(client)
    consume(client, queue, "a", no_ack=True)
    late = method(1, "basic.consume", queue=queue, consumer_tag="b", no_ack=True, nowait=True)
    client.send(publishes(queue, "1", "2", "3", "4") + late + publishes(queue, "5", "6"))
    tags = [message.method.consumer_tag for message in client.expect_messages(6, 1)]
    assert tags[:4] == ["a"] * 4
    assert "b" in tags[4:]


def test_a_consumer_gets_the_backlog_before_a_get_or_its_cancel(client: Client) -> None:
    queue = limited(client)
    client.send(publishes(queue, "1", "2", "3"))
    client.fence(1)
    client.send(
        method(1, "basic.consume", queue=queue, consumer_tag="c", no_ack=True, nowait=True)
        + method(1, "basic.get", queue=queue)
        + method(1, "basic.cancel", consumer_tag="c")
    )
    assert sorted(told(client, 5)) == ["1", "2", "3", "basic.cancel-ok", "basic.get-empty"]


@pytest.mark.parametrize("arguments", [{"x_single_active_consumer": True}, {}])
def test_the_next_consumer_begins_where_the_cancelled_one_ended(
    client: Client, arguments: dict[str, bool]
) -> None:
    queue = limited(client, **arguments)
    consume(client, queue, "a", no_ack=True, arguments={"x-priority": 5})
    consume(client, queue, "b", no_ack=True)
    cancel = method(1, "basic.cancel", consumer_tag="a", nowait=True)
    client.send(publishes(queue, "1", "2", "3") + cancel + publishes(queue, "4"))
    tags = [message.method.consumer_tag for message in client.expect_messages(4, 1)]
    assert tags == ["a", "a", "a", "b"]


def test_a_higher_priority_does_not_overtake_what_a_consumer_can_take(client: Client) -> None:
    queue = limited(client, x_max_priority=5)
    client.call(1, "basic.qos", prefetch_count=1)
    consume(client, queue)
    client.send(
        publishes(queue, "low", priority=1)
        + publishes(queue, "high", priority=5)
        + method(1, "basic.get", queue=queue)
    )
    assert sorted(told(client, 2)) == ["got high", "low"]


def test_a_commit_delivers_before_a_get(client: Client, flavour: str) -> None:
    if flavour == "rabbitmq":
        pytest.skip("it takes nothing else while it commits")
    queue = limited(client)
    consume(client, queue, no_ack=True)
    client.call(2, "channel.open")
    client.call(2, "tx.select")
    client.send(
        publishes(queue, "1", "2", channel=2)
        + method(2, "tx.commit")
        + method(2, "basic.get", queue=queue)
    )
    assert told(client, 4) == ["1", "2", "tx.commit-ok", "basic.get-empty"]


def test_a_fault_comes_behind_what_was_published_before_it(client: Client, flavour: str) -> None:
    queue = limited(client)
    consume(client, queue, no_ack=True)
    client.send(publishes(queue, "1", "2") + method(1, "basic.ack", delivery_tag=99))
    assert told(client, 3, flavour) == ["1", "2", "channel.close"]


def test_a_long_backlog_and_many_gets_give_each_message_once(client: Client) -> None:
    """More than one turn of the broker's loop may deliver, and more than its socket takes."""
    queue = limited(client)
    count, gets = 20_000, 30
    for start in range(0, count, 500):
        client.send(publishes(queue, *(str(start + n) for n in range(500))))
    client.fence(1)
    client.send(
        method(1, "basic.consume", queue=queue, consumer_tag="c", no_ack=True, nowait=True)
        + method(1, "basic.get", queue=queue, no_ack=True) * gets
        + method(1, "basic.cancel", consumer_tag="c")
    )
    found = []
    while not found or found[-1] != "basic.cancel-ok":
        found += told(client, 1)
    left = client.call(1, "queue.purge", queue=queue).message_count
    delivered = [int(each) for each in found if each.isdigit()]
    got = [int(each.removeprefix("got ")) for each in found if each.startswith("got ")]
    assert delivered == sorted(delivered)
    assert got == sorted(got)
    assert sorted(delivered + got) == list(range(count - left))
