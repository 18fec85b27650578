"""The delivery limit: how often a message may come back before its queue gives it up."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.amqp.raw import Client
from tests.appliance import Appliance


def declare(client: Client, queue: str, **arguments: Any) -> None:
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    client.call(1, "queue.declare", queue=queue, durable=True, arguments=table)


def return_one(client: Client, queue: str) -> Any:
    """Takes a message and gives it back. Returns the count it came with, or -1 without a
    message."""
    got = client.get(1, queue)
    if got is None:
        return -1
    client.send_method(1, "basic.nack", delivery_tag=got.tag, requeue=True)
    return got.properties.get("headers", {}).get("x-delivery-count")


def test_it_counts_returns_and_gives_up_at_the_limit(client: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=f"{name}-graves")
    declare(
        client, name, delivery_limit=2,
        dead_letter_exchange="", dead_letter_routing_key=f"{name}-graves",
    )  # fmt: skip
    client.publish(1, "", name, b"poison")
    assert [return_one(client, name) for _ in range(4)] == [None, 1, 2, -1]
    letter = client.get(1, f"{name}-graves")
    assert letter is not None
    assert letter.properties["headers"]["x-death"][0]["reason"] == "delivery_limit"


def test_it_drops_the_message_without_a_dead_letter_exchange(client: Client, name: str) -> None:
    declare(client, name, delivery_limit=0)
    client.publish(1, "", name, b"poison")
    assert [return_one(client, name) for _ in range(2)] == [None, -1]


def test_it_counts_what_a_closed_channel_gives_back(client: Client, name: str) -> None:
    declare(client, name, delivery_limit=5)
    client.publish(1, "", name, b"x")
    client.call(2, "channel.open")
    assert client.get(2, name) is not None
    client.call(2, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    assert return_one(client, name) == 1


def test_it_never_gives_up_at_minus_one(client: Client, name: str) -> None:
    declare(client, name, queue_type="quorum", delivery_limit=-1)
    client.publish(1, "", name, b"x")
    assert [return_one(client, name) for _ in range(25)] == [None] * 25


def test_it_takes_a_quorum_queue_as_a_durable_one_with_a_limit_of_20(
    client: Client, name: str
) -> None:
    declare(client, name, queue_type="quorum", quorum_initial_group_size=3)
    client.publish(1, "", name, b"x")
    assert [return_one(client, name) for _ in range(22)] == [None, *range(1, 21), -1]


@pytest.mark.parametrize(
    ("properties", "wrong"),
    [
        ({"durable": False}, "invalid property 'non-durable'"),
        ({"durable": True, "exclusive": True}, "invalid property 'exclusive-owner'"),
        ({"durable": True, "auto_delete": True}, "invalid property 'auto-delete'"),
    ],
)
def test_it_refuses_what_a_quorum_queue_cannot_be(
    client: Client, name: str, properties: dict[str, bool], wrong: str
) -> None:
    table = {"x-queue-type": "quorum"}
    client.send_method(1, "queue.declare", queue=name, arguments=table, **properties)
    assert wrong in client.expect_channel_close(1, 406, 50, 10).reply_text


@pytest.mark.parametrize(("value", "wrong"), [(-2, "value_negative"), ("5", "expected integer")])
def test_it_refuses_a_wrong_limit(client: Client, name: str, value: Any, wrong: str) -> None:
    table = {"x-delivery-limit": value}
    client.send_method(1, "queue.declare", queue=name, arguments=table)
    assert wrong in client.expect_channel_close(1, 406, 50, 10).reply_text


def test_it_keeps_the_count_over_a_restart(
    make_broker: Callable[..., Appliance], kill: bool
) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        declare(client, "q", delivery_limit=5)
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"x", delivery_mode=2)
        client.expect_confirms(1, 1)
        assert [return_one(client, "q") for _ in range(3)] == [None, 1, 2]
        client.fence(1)
        broker.end(kill=kill)
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        assert return_one(client, "q") == 3
