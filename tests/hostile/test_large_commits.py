"""Large transactions: bounded for a channel and for a user, and others are served meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.amqp.raw import Client, method, publish
from tests.appliance import Appliance

COUNT = 30_000
MOST = 40_000
SLOW = {"headers": {"CC": []}}
"""Properties that are decoded at the publish and at the commit: the commit takes a second."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    broker = Appliance(
        "broker",
        tmp_path_factory.mktemp("commits"),
        max_uncommitted_messages=MOST,
        max_uncommitted_bytes="20 MiB",
        max_uncommitted_user_bytes="30 MiB",
    ).start()
    yield broker
    broker.close()


def opened(broker: Appliance) -> Client:
    return Client.open((broker.host, broker.amqp_port), channels=(1, 2), timeout=60)


def count(client: Client, queue: str) -> int:
    """Messages of a queue, asked on channel 2."""
    found: int = client.call(2, "queue.declare", queue=queue, passive=True).message_count
    return found


def fill(client: Client, queue: str, many: int = COUNT, exchange: str = "") -> None:
    """Begins a transaction on channel 1 with so many messages."""
    client.call(1, "queue.declare", queue=queue)
    client.call(1, "tx.select")
    one = publish(1, exchange, queue, b"x", **SLOW)
    for _ in range(many // 1000):
        client.send(one * 1000)
    client.call(1, "queue.declare", queue=queue, passive=True)


def part_way(other: Client, queue: str) -> int:
    """Waits until some of a commit is carried out; how much."""
    return until(other, queue, 1)


def until(other: Client, queue: str, least: int) -> int:
    """Waits until so many messages are there; how many there are."""
    deadline = time.monotonic() + 60
    while (found := count(other, queue)) < least:
        assert time.monotonic() < deadline, f"{found} of {least} messages are in {queue}"
    return found


def test_others_are_served_while_a_large_transaction_is_committed(broker: Appliance) -> None:
    with opened(broker) as client, opened(broker) as other:
        fill(client, "served")
        client.send_method(1, "tx.commit")
        # What comes behind it on the same connection waits for it.
        client.send_method(1, "queue.declare", queue="served", passive=True)
        assert 0 < part_way(other, "served") < COUNT
        client.expect("tx.commit-ok", 1)
        assert client.expect("queue.declare-ok", 1).message_count == COUNT
        assert client.call(1, "queue.delete", queue="served").message_count == COUNT


def test_a_commit_is_carried_out_whole_though_its_client_leaves(broker: Appliance) -> None:
    with opened(broker) as other:
        with opened(broker) as client:
            other.call(1, "queue.declare", queue="work")
            for _ in range(3):
                other.publish(1, "", "work", b"to do")
            other.fence(1)
            client.call(1, "basic.qos", prefetch_count=3)
            client.call(1, "basic.consume", queue="work")
            tags = [message.tag for message in client.expect_messages(3, 1)]
            fill(client, "left")
            client.send_method(1, "basic.ack", delivery_tag=tags[1], multiple=True)
            client.send_method(1, "tx.commit")
            assert part_way(other, "left") < COUNT
        until(other, "left", COUNT)
        # The consumer's delivery that was not acked comes back behind the commit.
        assert until(other, "work", 1) == 1
        assert other.call(1, "queue.delete", queue="left").message_count == COUNT


def test_a_commit_whose_exchange_goes_meanwhile_settles_nothing(broker: Appliance) -> None:
    with opened(broker) as client, opened(broker) as other:
        other.call(1, "queue.declare", queue="half")
        other.call(1, "exchange.declare", exchange="gone", type="fanout")
        other.call(1, "queue.bind", queue="half", exchange="gone", routing_key="")
        other.call(1, "queue.declare", queue="source")
        other.publish(1, "", "source", b"to do")
        other.fence(1)
        client.call(1, "basic.consume", queue="source")
        (message,) = client.expect_messages(1, 1)
        fill(client, "half", exchange="gone")
        client.send_method(1, "basic.ack", delivery_tag=message.tag)
        client.send_method(1, "tx.commit")
        assert part_way(other, "half") < COUNT
        other.call(1, "exchange.delete", exchange="gone")
        client.expect_channel_close(1, 406, 90, 20, "partial tx completion: no exchange 'gone'")
        assert count(other, "source") == 1
        assert 0 < other.call(1, "queue.delete", queue="half").message_count < COUNT


def test_a_transaction_holds_so_many_messages_and_no_more(broker: Appliance) -> None:
    with opened(broker) as client:
        fill(client, "many", MOST)
        client.publish(1, "", "many", b"x")
        client.expect_channel_close(
            1, 406, 60, 40, rf"holds {MOST} messages.*max_uncommitted_messages.*commit more often"
        )
        assert count(client, "many") == 0


def test_transactions_of_one_user_are_bounded_together(broker: Appliance) -> None:
    body = bytes(5 << 20)
    with opened(broker) as first, opened(broker) as second:
        for client in (first, second):
            client.call(1, "queue.declare", queue="large")
            client.call(1, "tx.select")
        for client in (first, first, first, second, second):
            client.publish(1, "", "large", body)
        first.fence(1)
        second.fence(1)
        second.publish(1, "", "large", body)
        second.expect_channel_close(1, 406, 60, 40, "max_uncommitted_user_bytes")
        # What the closed channel held is free; so is what is rolled back or committed.
        first.call(1, "tx.rollback")
        for end in ("tx.commit", "tx.rollback"):
            for _ in range(3):
                first.publish(1, "", "large", body)
            first.call(1, end)
        assert first.call(1, "queue.delete", queue="large").message_count == 3
        for _ in range(3):
            first.publish(1, "", "large", body)
        first.fence(1)
    with opened(broker) as third:
        third.call(1, "queue.declare", queue="large")
        third.call(1, "tx.select")
        for _ in range(3):
            third.publish(1, "", "large", body)
        third.call(1, "tx.commit")
        assert third.call(1, "queue.delete", queue="large").message_count == 3


def test_many_commits_in_one_packet_are_each_answered(broker: Appliance) -> None:
    with opened(broker) as client:
        client.call(1, "queue.declare", queue="small")
        client.call(1, "tx.select")
        one = publish(1, "", "small", b"x")
        client.send((one * 20 + method(1, "tx.commit")) * 50)
        for _ in range(50):
            client.expect("tx.commit-ok", 1)
        assert client.call(1, "queue.delete", queue="small").message_count == 1000
