"""What comes over no channel and goes to very many queues is given to them in several turns, and is
what else they get: dead letters, delayed messages, what the HTTP API publishes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from management.broker_client import BrokerError
from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import control

COUNT = 1200
"""Queues behind the exchange: more than get a message at once."""


@pytest.fixture
def client(broker: Appliance) -> Iterator[raw.Client]:
    with raw.Client.open((broker.host, broker.amqp_port), timeout=60) as client:
        yield client


def declare(client: raw.Client, count: int = COUNT, **arguments: dict[str, Any]) -> None:
    """A fanout exchange with these queues, some with `arguments`, and the queue that dies to it."""
    client.call(1, "exchange.declare", exchange="dead", type="fanout")
    for number in range(count):
        name = f"q{number}"
        client.send(
            raw.method(
                1, "queue.declare", queue=name, arguments=arguments.get(name, {}), nowait=True
            )
            + raw.method(1, "queue.bind", queue=name, exchange="dead", nowait=True)
        )
    client.call(1, "queue.declare", queue="source", arguments={"x-dead-letter-exchange": "dead"})


def counts(client: raw.Client, count: int = COUNT) -> list[int]:
    """How many messages are ready in each."""
    return [
        client.call(1, "queue.declare", queue=f"q{number}", passive=True).message_count
        for number in range(count)
    ]


def die(client: raw.Client, body: bytes = b"x") -> None:
    """A message of the source is rejected."""
    client.publish(1, "", "source", body)
    got = client.get(1, "source")
    assert got is not None
    client.send(raw.method(1, "basic.reject", delivery_tag=got.tag, requeue=False))
    client.fence(1)


async def held(broker: Appliance) -> int:
    """Messages that the source holds."""
    async with control(broker) as asking:
        row = await asking.call("item", noun="queues", vhost="/", name="source")
    return int(row["messages"])


async def until_gone(broker: Appliance) -> None:
    while await held(broker):
        pass


async def test_each_queue_gets_it_once(broker: Appliance, client: raw.Client) -> None:
    declare(client)
    for number in range(3):
        die(client, b"%d" % number)
    await until_gone(broker)
    assert counts(client) == [3] * COUNT
    got = client.get(1, f"q{COUNT - 1}", no_ack=True)
    assert got is not None
    assert got.body == b"0"
    assert got.properties["headers"]["x-death"][0]["queue"] == "source"


async def test_one_that_expires_goes_to_no_queue_where_it_was(
    broker: Appliance, client: raw.Client
) -> None:
    declare(client)
    client.call(1, "queue.bind", queue="source", exchange="dead")
    client.publish(1, "", "source", b"x", expiration="1")
    await until_gone(broker)
    assert counts(client) == [1] * COUNT


async def test_a_full_queue_keeps_it_and_the_others_do_not_get_it_again(
    broker: Appliance, client: raw.Client
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    declare(client, q700=full)
    client.publish(1, "", "q700", b"first")
    die(client, b"second")
    while sum(counts(client)) < COUNT:
        pass
    assert await held(broker) == 1
    first = client.get(1, "q700", no_ack=True)
    await until_gone(broker)
    second = client.get(1, "q700", no_ack=True)
    assert first is not None
    assert second is not None
    assert (first.body, second.body) == (b"first", b"second")
    assert sum(counts(client)) == COUNT - 1


async def test_a_large_body_is_stored_once_and_given_back(
    broker: Appliance, client: raw.Client
) -> None:
    declare(client)
    body = bytes(range(256)) * 200
    die(client, body)
    await until_gone(broker)
    for number in range(COUNT):
        got = client.get(1, f"q{number}", no_ack=True)
        assert got is not None
        assert got.body == body
    async with asyncio.timeout(60), control(broker) as asking:
        # Counts of a virtual host are those of the last second.
        while (await asking.call("item", noun="vhosts", name="/"))["messages"]:
            pass


async def test_a_kill_meanwhile_loses_none(broker: Appliance, client: raw.Client) -> None:
    declare(client)
    client.call(1, "confirm.select")
    durable = {"x-dead-letter-exchange": "kept"}
    client.call(1, "exchange.declare", exchange="kept", type="fanout", durable=True)
    client.call(1, "queue.declare", queue="dying", durable=True, arguments=durable)
    for number in range(COUNT):
        name = f"d{number}"
        client.send(
            raw.method(1, "queue.declare", queue=name, durable=True, nowait=True)
            + raw.method(1, "queue.bind", queue=name, exchange="kept", nowait=True)
        )
    client.publish(1, "", "dying", b"x", delivery_mode=2)
    client.expect("basic.ack", 1)
    got = client.get(1, "dying")
    assert got is not None
    client.send(raw.method(1, "basic.reject", delivery_tag=got.tag, requeue=False))
    client.fence(1)
    broker.end(kill=True)
    broker.start()
    with raw.Client.open((broker.host, broker.amqp_port), timeout=60) as again:
        got = again.get(1, "dying")
        if got is not None:
            again.send(raw.method(1, "basic.reject", delivery_tag=got.tag, requeue=False))
        names = [f"d{number}" for number in range(COUNT)]
        while not all(
            again.call(1, "queue.declare", queue=name, passive=True).message_count for name in names
        ):
            pass


async def test_queues_may_be_deleted_meanwhile(broker: Appliance, client: raw.Client) -> None:
    declare(client)
    for number in range(5):
        client.publish(1, "", "source", b"x" * 5000)
        got = client.get(1, "source")
        assert got is not None
        client.send(
            raw.method(1, "basic.reject", delivery_tag=got.tag, requeue=False)
            + raw.method(1, "queue.delete", queue=f"q{COUNT - 1 - number}", nowait=True)
        )
    client.call(1, "queue.delete", queue="source")
    client.call(1, "queue.declare", queue="source", arguments={"x-dead-letter-exchange": "dead"})
    die(client)
    await until_gone(broker)
    assert min(counts(client, COUNT - 5)) >= 1


async def test_a_confirm_waits_for_the_acks_of_all(broker: Appliance, client: raw.Client) -> None:
    count = 600
    on_ack = {"x-confirm-on": "ack"}
    client.call(1, "exchange.declare", exchange="dead", type="fanout")
    for number in range(count):
        client.call(1, "queue.declare", queue=f"q{number}", arguments=on_ack)
        client.call(1, "queue.bind", queue=f"q{number}", exchange="dead")
    arguments = on_ack | {"x-dead-letter-exchange": "dead"}
    client.call(1, "queue.declare", queue="source", arguments=arguments)
    with raw.Client.open((broker.host, broker.amqp_port), timeout=60) as publisher:
        publisher.call(1, "confirm.select")
        publisher.publish(1, "", "source", b"x")
        publisher.fence(1)
        got = client.get(1, "source")
        assert got is not None
        client.send(raw.method(1, "basic.reject", delivery_tag=got.tag, requeue=False))
        client.fence(1)
        # The first ones are acknowledged while others do not have it yet.
        for number in range(count - 1):
            taken = None
            while taken is None:
                taken = client.get(1, f"q{number}")
            client.send(raw.method(1, "basic.ack", delivery_tag=taken.tag))
        client.fence(1)
        publisher.fence(1)  # no confirm comes before
        last = client.get(1, f"q{count - 1}")
        assert last is not None
        client.send(raw.method(1, "basic.ack", delivery_tag=last.tag))
        publisher.expect("basic.ack", 1)


REFUSES = {
    "x-max-length": 1,
    "x-overflow": "reject-publish-dlx",
    "x-dead-letter-exchange": "dead",
}


def declare_refusing(client: raw.Client, count: int = COUNT, **arguments: dict[str, Any]) -> None:
    """The same, and a full queue whose refused messages go to all of them."""
    declare(client, count, **arguments)
    client.call(1, "queue.declare", queue="refusing", arguments=REFUSES)
    client.publish(1, "", "refusing", b"fills it")


def refuse(client: raw.Client, *bodies: bytes) -> None:
    """Publishes them; their negative confirms have come when it returns."""
    client.call(2, "channel.open")
    client.call(2, "confirm.select")
    client.send(b"".join(raw.publish(2, "", "refusing", body) for body in bodies))
    told = client.expect_confirms(2, len(bodies))
    assert set(told.values()) == {"basic.nack"}
    client.call(2, "channel.close")


async def test_each_queue_gets_refused_messages_once_and_in_order(
    broker: Appliance, client: raw.Client
) -> None:
    declare_refusing(client)
    wanted = [b"0", bytes(range(256)) * 200, b"2"]
    refuse(client, *wanted)
    while counts(client) != [3] * COUNT:
        pass
    for number in (0, 1, COUNT - 1):
        got = [client.get(1, f"q{number}", no_ack=True) for _ in wanted]
        assert [each.body for each in got if each is not None] == wanted
        assert all(
            each.properties["headers"]["x-first-death-reason"] == "maxlen"
            for each in got
            if each is not None
        )
    got = client.get(1, "refusing", no_ack=True)
    assert got is not None
    assert got.body == b"fills it"
    assert client.get(1, "refusing", no_ack=True) is None


async def test_a_full_queue_does_without_a_refused_message(
    broker: Appliance, client: raw.Client
) -> None:
    declare_refusing(client, q700={"x-max-length": 1, "x-overflow": "reject-publish"})
    refuse(client, b"0", b"1")
    while sum(counts(client)) != 2 * COUNT - 1:
        pass
    first = client.get(1, "q700", no_ack=True)
    assert first is not None
    assert first.body == b"0"
    refuse(client, b"2")
    while sum(counts(client)) != 3 * COUNT - 2:
        pass


async def test_a_queue_may_go_while_refused_messages_are_on_their_way(
    broker: Appliance, client: raw.Client
) -> None:
    declare_refusing(client)
    body = bytes(range(256)) * 200
    for _ in range(3):
        refuse(client, *[body] * 20)
        client.call(1, "queue.delete", queue="refusing")
        client.call(1, "queue.declare", queue="refusing", arguments=REFUSES)
        client.publish(1, "", "refusing", b"fills it")
    refuse(client, b"last")
    while client.call(1, "queue.declare", queue=f"q{COUNT - 1}", passive=True).message_count == 0:
        pass
    assert "Traceback" not in broker.log()


def test_more_refused_messages_than_may_wait_are_given_up(make_broker: Make) -> None:
    broker = make_broker(refused_backlog_max=5)
    with raw.Client.open((broker.host, broker.amqp_port), timeout=60) as client:
        declare_refusing(client)
        refuse(client, *[b"x"] * 200)
        # What waits in order comes before the last, which finds room when they are gone.
        while client.get(1, f"q{COUNT - 1}", no_ack=True) is None:
            pass
        found: set[bytes] = set()
        taken = 1
        while b"last" not in found:
            refuse(client, b"last")
            while (got := client.get(1, f"q{COUNT - 1}", no_ack=True)) is not None:
                found.add(got.body)
                taken += got.body == b"x"
    assert 5 <= taken < 200
    assert "queue 'refusing' in vhost '/' gives up dead letters" in broker.log()


async def test_one_without_time_to_live_is_kept_until_all_have_it(
    broker: Appliance, client: raw.Client
) -> None:
    client.call(1, "exchange.declare", exchange="kept", type="fanout", durable=True)
    for number in range(COUNT):
        name = f"d{number}"
        client.send(
            raw.method(1, "queue.declare", queue=name, durable=True, nowait=True)
            + raw.method(1, "queue.bind", queue=name, exchange="kept", nowait=True)
        )
    arguments = {"x-dead-letter-exchange": "kept"}
    client.call(1, "queue.declare", queue="dying", durable=True, arguments=arguments)
    client.call(1, "confirm.select")
    client.publish(1, "", "dying", b"0", delivery_mode=2, expiration="0")
    client.publish(1, "", "dying", b"1", delivery_mode=2, expiration="0")
    client.expect_confirms(1, 2)
    broker.end(kill=True)
    broker.start()
    with raw.Client.open((broker.host, broker.amqp_port), timeout=60) as again:
        for number in range(COUNT):
            found: list[bytes] = []
            while b"1" not in found:
                got = again.get(1, f"d{number}", no_ack=True)
                found += [got.body] if got is not None else []
            assert found[0] == b"0"


def declare_delayed(client: raw.Client, **arguments: dict[str, Any]) -> None:
    """An exchange that holds messages back, and queues behind it."""
    client.call(
        1,
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        arguments={"x-delayed-type": "fanout"},
    )
    for number in range(COUNT):
        name = f"q{number}"
        client.send(
            raw.method(
                1, "queue.declare", queue=name, arguments=arguments.get(name, {}), nowait=True
            )
            + raw.method(1, "queue.bind", queue=name, exchange="later", nowait=True)
        )
    client.fence(1)


async def waiting(broker: Appliance) -> int:
    """Messages that the exchange holds, also those that are on their way."""
    async with control(broker) as asking:
        row = await asking.call("item", noun="exchanges", vhost="/", name="later")
    return int(row["messages_delayed"] + row["messages_leaving"])


async def test_each_queue_gets_a_delayed_message_once(
    broker: Appliance, client: raw.Client
) -> None:
    declare_delayed(client)
    bodies = [b"small", bytes(range(256)) * 200]
    for body in bodies:
        client.publish(1, "later", "", body, headers={"x-delay": 1})
    client.fence(1)
    while await waiting(broker):
        pass
    assert counts(client) == [2] * COUNT
    for number in range(COUNT):
        got = [client.get(1, f"q{number}", no_ack=True) for _ in bodies]
        assert sorted(each.body for each in got if each is not None) == sorted(bodies)


async def test_a_delayed_message_waits_for_a_full_queue_alone(
    broker: Appliance, client: raw.Client
) -> None:
    declare_delayed(client, q700={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish(1, "", "q700", b"first")
    client.publish(1, "later", "", b"second", headers={"x-delay": 1})
    while sum(counts(client)) < COUNT:
        pass
    assert await waiting(broker) == 1
    client.publish(1, "later", "", b"third", headers={"x-delay": 1})
    while sum(counts(client)) < 2 * COUNT - 1:
        pass
    for body in (b"first", b"second", b"third"):
        got = None
        while got is None:
            got = client.get(1, "q700", no_ack=True)
        assert got.body == body
    while await waiting(broker):
        pass
    assert sum(counts(client)) == 2 * (COUNT - 1)


async def test_an_exchange_may_go_while_its_message_is_on_its_way(
    broker: Appliance, client: raw.Client
) -> None:
    for _ in range(3):
        declare_delayed(client)
        client.publish(1, "later", "", b"x" * 5000, headers={"x-delay": 1})
        client.fence(1)
        async with control(broker) as asking:
            row = await asking.call("item", noun="exchanges", vhost="/", name="later")
        assert row["messages_delayed"] + row["messages_leaving"] <= 1
        client.call(1, "exchange.delete", exchange="later")
    client.publish(1, "", "q1", b"well")
    while sum(counts(client, 2)) < 1:
        pass


async def test_each_queue_gets_what_the_api_publishes_once(
    broker: Appliance, client: raw.Client
) -> None:
    declare(client, q700={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish(1, "", "q700", b"first")
    client.fence(1)
    body = bytes(range(256)) * 200
    async with control(broker) as asking:
        # As over AMQP, where one of them makes the answer a nack.
        with pytest.raises(BrokerError, match="Check queue limits"):
            await asking.call(
                "exchange.publish",
                vhost="/",
                name="dead",
                routing_key="",
                properties={},
                payload=body,
            )
    assert counts(client) == [1] * COUNT
    for number in (0, 699, 701, COUNT - 1):
        got = client.get(1, f"q{number}", no_ack=True)
        assert got is not None
        assert got.body == body
