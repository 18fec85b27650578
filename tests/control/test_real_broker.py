"""The control socket of a real broker process, beside a real AMQP client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker

from management.broker_client import BrokerClient, BrokerError
from tests.amqp import raw
from tests.appliance import Appliance
from tests.websocket.test_doors import Client as WebSocketClient

ODD_NAMES = ["a/b %2F ~", "é🐇\u202e", "<img src=x onerror=alert(1)>", "{}\\\"'", "q" * 255]


def connect(
    broker: Appliance, user: str = "guest", password: str = "guest", vhost: str = "/"
) -> pika.BlockingConnection:
    host, port = broker.addresses["amqp"]
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, port, vhost, credentials, connection_attempts=1)
    )


@contextlib.asynccontextmanager
async def control(broker: Appliance) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(broker.data_dir / "control.sock")
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
def connection(shared_broker: Appliance) -> Iterator[pika.BlockingConnection]:
    connection = connect(shared_broker)
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(
    connection: pika.BlockingConnection,
) -> pika.adapters.blocking_connection.BlockingChannel:
    return connection.channel()


async def until(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """Looks again, a few times a second, until the answer is as wanted."""
    async with asyncio.timeout(60):
        while True:
            found = await look()
            if wanted(found):
                return found
            await asyncio.sleep(0.2)


async def test_it_shows_a_client_at_work(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    channel.queue_declare("work", arguments={"x-unknown": 5})
    channel.basic_qos(prefetch_count=2)
    tag = channel.basic_consume("work", lambda *delivery: None)
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", "work", b"%d" % number)
    connection.process_data_events(0.2)
    row = await client.call("item", noun="queues", vhost="/", name="work")
    assert (row["messages_ready"], row["messages_unacknowledged"], row["consumers"]) == (3, 2, 1)
    assert row["arguments"] == {"x-unknown": 5}
    assert row["message_stats"]["publish"] == 5
    (consumer,) = row["consumer_details"]
    assert consumer["consumer_tag"] == tag
    assert (consumer["prefetch_count"], consumer["unacked"]) == (2, 2)
    assert consumer["trouble"] == "full"
    name = consumer["channel_details"]["connection_name"]
    mine = await client.call("item", noun="connections", name=name)
    assert mine["client_properties"]["product"] == "Pika Python Client Library"
    assert (mine["user"], mine["vhost"], mine["state"]) == ("guest", "/", "running")
    shown = await client.call("item", noun="channels", name=f"{name} (1)")
    assert shown["confirm"] is True
    assert shown["message_stats"]["confirm"] == 5
    assert shown["consumer_details"][0]["queue"]["name"] == "work"
    for noun in ("connections", "channels", "consumers", "bindings", "exchanges"):
        assert (await client.call("list", noun=noun, page=1))["items"], noun


async def test_it_counts_what_reaches_no_queue(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    """Whatever was asked for: a message that goes back to its publisher was not dropped."""
    before = (await client.call("overview"))["message_stats"]
    for mandatory in (False, False, True):
        channel.basic_publish("", "no such queue", b"", mandatory=mandatory)
    channel.basic_publish("amq.fanout", "", b"")
    connection.process_data_events(0.2)
    names = ("publish", "drop_unroutable", "return_unroutable")
    (row,) = [
        row
        for row in (await client.call("list", noun="channels"))["items"]
        if row["message_stats"]["return_unroutable"]
    ]
    assert [row["message_stats"][name] for name in names] == [4, 3, 1]

    async def counted() -> list[int]:
        after = (await client.call("overview"))["message_stats"]
        return [after[name] - before[name] for name in names]

    await until(counted, lambda counts: counts == [4, 3, 1])


async def test_it_has_rates_and_totals_of_real_traffic(
    shared_broker: Appliance, client: BrokerClient, connection: Any, channel: Any
) -> None:
    channel.queue_declare("rates")
    before = (await client.call("overview"))["message_stats"]["publish"]

    async def look() -> Any:
        for _ in range(20):
            channel.basic_publish("", "rates", b"x")
        connection.process_data_events(0)
        return await client.call("overview")

    overview = await until(
        look,
        lambda found: (
            found["message_stats"]["publish"] > before
            and found["message_stats"]["publish_details"]["rate"] > 20
            and found["top_publishers"]
        ),
    )
    assert overview["object_totals"]["connections"] >= 1
    assert overview["top_publishers"][0]["publish_rate"] > 0
    row = await client.call("item", noun="queues", vhost="/", name="rates")
    assert row["message_stats"]["publish_details"]["rate"] > 0
    assert row["trouble"] == "not served"
    channel.queue_delete("rates")
    connection.close()
    after = await until(
        lambda: client.call("overview"),
        lambda found: found["message_stats"]["publish_details"]["rate"] == 0,
    )
    assert after["message_stats"]["publish"] >= overview["message_stats"]["publish"]


async def test_it_publishes_and_gets(client: BrokerClient, channel: Any) -> None:
    channel.queue_declare("letters")
    channel.queue_bind("letters", "amq.topic", "letter.#")
    properties = {
        "delivery_mode": 2,
        "content_type": "text/plain",
        "headers": {"n": 1, "deep": {"list": [1, "two", True]}, "CC": ["nowhere"]},
    }
    for body in (b"one", b"\xff\x00", b""):
        answer = await client.call(
            "exchange.publish",
            as_user="guest",
            vhost="/",
            name="amq.topic",
            routing_key="letter.a",
            payload=body,
            properties=properties,
        )
        assert answer == {"routed": True}
    look = {"vhost": "/", "name": "letters", "count": 10, "as_user": "guest"}
    found = await client.call("queue.get", **look)
    assert [message["payload"] for message in found] == [b"one", b"\xff\x00", b""]
    assert found[0]["properties"] == properties
    assert (found[0]["exchange"], found[0]["routing_key"]) == ("amq.topic", "letter.a")
    assert not found[0]["redelivered"]
    again = await client.call("queue.get", **look, ackmode="ack_requeue_false")
    assert [message["payload"] for message in again] == [b"one", b"\xff\x00", b""]
    assert all(message["redelivered"] for message in again)
    assert channel.queue_declare("letters", passive=True).method.message_count == 0
    nothing = {"vhost": "/", "name": "amq.topic", "routing_key": "none", "payload": b""}
    assert await client.call("exchange.publish", **nothing) == {"routed": False}
    channel.basic_publish("", "letters", b"from a client")
    method, _, body = channel.basic_get("letters", auto_ack=True)
    assert body == b"from a client"
    assert method is not None


async def test_it_lets_nobody_take_from_an_exclusive_queue(
    client: BrokerClient, channel: Any
) -> None:
    name = channel.queue_declare("", exclusive=True).method.queue
    for verb in ("queue.get", "queue.declare"):
        with pytest.raises(BrokerError, match="cannot obtain exclusive access"):
            await client.call(verb, vhost="/", name=name)
    await client.call("queue.delete", as_user="guest", vhost="/", name=name)
    with pytest.raises(BrokerError, match="queue_not_found"):
        await client.call("item", noun="queues", vhost="/", name=name)


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_it_takes_odd_names_from_both_sides(
    client: BrokerClient, channel: Any, name: str
) -> None:
    channel.exchange_declare(name, "topic")
    await client.call("queue.declare", vhost="/", name=name)
    key = name[:100]
    made = await client.call(
        "binding.create",
        vhost="/",
        source=name,
        destination=name,
        destination_type="queue",
        routing_key=key,
        arguments={"a": 1},
    )
    channel.basic_publish(name, key, b"x")
    (message,) = await until(
        lambda: client.call("queue.get", vhost="/", name=name, ackmode="ack_requeue_false"),
        bool,
    )
    assert (message["exchange"], message["routing_key"]) == (name, key)
    await client.call(
        "binding.delete",
        vhost="/",
        source=name,
        destination=name,
        destination_type="queue",
        properties_key=made["properties_key"],
    )
    channel.queue_delete(name)
    channel.exchange_delete(name)


async def test_it_closes_a_connection_with_the_reason(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    channel.queue_declare("named", exclusive=True)
    row = await client.call("item", noun="queues", vhost="/", name="named")
    await client.call(
        "connection.close",
        as_user="guest",
        name=row["owner_pid_details"]["name"],
        reason="for a test",
    )
    with pytest.raises(ConnectionClosedByBroker) as caught:
        for _ in range(50):
            connection.process_data_events(0.1)
    assert caught.value.reply_code == 320
    assert "for a test" in caught.value.reply_text


async def test_it_lets_a_new_user_in_by_its_rights_and_out_when_deleted(
    shared_broker: Appliance, client: BrokerClient
) -> None:
    await client.call("user.put", name="carol", tags=[], password="carols secret")
    with pytest.raises(AMQPConnectionError):
        connect(shared_broker, "carol", "carols secret")
    args = {"vhost": "/", "user": "carol"}
    await client.call("permission.put", **args, configure="^carol", write="", read="")
    connection = connect(shared_broker, "carol", "carols secret")
    channel = connection.channel()
    channel.queue_declare("carols queue")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="configure access to queue"):
        channel.queue_declare("others")
    await client.call("user.delete", name="carol")
    with pytest.raises(ConnectionClosedByBroker, match="user 'carol' is deleted"):
        for _ in range(50):
            connection.process_data_events(0.1)
    with pytest.raises(AMQPConnectionError):
        connect(shared_broker, "carol", "carols secret")
    await client.call("queue.delete", vhost="/", name="carols queue")


async def test_it_stops_a_publisher_whose_permission_goes(
    shared_broker: Appliance, client: BrokerClient
) -> None:
    await client.call("user.put", name="dora", tags=[], password="doras secret")
    rights = {"vhost": "/", "user": "dora", "configure": ".*", "read": ".*"}
    await client.call("permission.put", **rights, write=".*")
    connection = connect(shared_broker, "dora", "doras secret")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("doras")
    channel.basic_publish("", "doras", b"x")
    await client.call("permission.put", **rights, write="")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="write access to exchange"):
        channel.basic_publish("", "doras", b"x")
    connection.close()
    await client.call("user.delete", name="dora")
    await client.call("queue.delete", vhost="/", name="doras")


async def test_it_lets_a_ticket_in_once(shared_broker: Appliance, client: BrokerClient) -> None:
    ticket = (await client.call("ticket.issue", as_user="guest"))["ticket"]
    connect(shared_broker, "guest", ticket).close()
    with pytest.raises(AMQPConnectionError):
        connect(shared_broker, "guest", ticket)


async def test_it_counts_wrong_passwords_of_both_doors_together(make_broker: Any) -> None:
    broker = make_broker(login_failures_max=3)
    async with control(broker) as client:
        for password in ("wrong 1", "wrong 2"):
            with pytest.raises(AMQPConnectionError):
                connect(broker, "guest", password)
        sign_in = {"user": "guest", "peer": "127.0.0.1"}
        with pytest.raises(BrokerError) as caught:
            await client.call("authenticate", password="wrong 3", **sign_in)
        assert caught.value.status == 401
        with pytest.raises(BrokerError) as caught:
            await client.call("authenticate", password="guest", **sign_in)
        assert caught.value.status == 429
        with pytest.raises(AMQPConnectionError):
            connect(broker, "guest", "guest")
        await client.call("authenticate", user="guest", password="guest", peer="127.0.0.2")


async def test_wrong_passwords_keep_the_rightful_out_at_no_door(make_broker: Any) -> None:
    broker = make_broker(login_failures_max=3)
    with raw.Client.open((broker.host, broker.amqp_port)) as client:
        client.close()
    for number in range(8):
        with raw.Client((broker.host, broker.amqp_port)) as client:
            client.is_refused("guest", f"wrong {number}")
    with raw.Client.open((broker.host, broker.amqp_port)) as client:
        client.close()
    with WebSocketClient(broker.ws_url).use() as client:
        client.close()
    async with control(broker) as asked:
        sign_in = {"user": "guest", "peer": "127.0.0.1", "protocol": "http"}
        with pytest.raises(BrokerError) as caught:
            await asked.call("authenticate", password="wrong", **sign_in)
        assert caught.value.status == 401
        assert (await asked.call("authenticate", password="guest", **sign_in))["name"] == "guest"
        # From elsewhere, where guest was never let in, guessing stays slow.
        for number in range(3):
            with pytest.raises(BrokerError):
                await asked.call(
                    "authenticate", user="guest", password=f"wrong {number}", peer="127.0.0.3"
                )
        with pytest.raises(BrokerError) as caught:
            await asked.call("authenticate", user="guest", password="guest", peer="127.0.0.3")
        assert caught.value.status == 429


async def test_it_pushes_what_a_client_does(
    client: BrokerClient, connection: Any, channel: Any
) -> None:
    channel.queue_declare("watched")
    watched = client.subscribe(topic="rows", noun="queues", keys=[["/", "watched"]])
    happened = client.subscribe(topic="events", as_user="guest")
    async with (
        asyncio.timeout(60),
        contextlib.aclosing(watched) as rows,
        contextlib.aclosing(happened) as events,
    ):
        assert (await anext(rows)).data["rows"][0][1]["messages"] == 0
        assert (await anext(events)).event == "start"
        channel.basic_publish("", "watched", b"x")
        connection.process_data_events(0)
        async for push in rows:
            if push.data["rows"] and push.data["rows"][0][1].get("messages") == 1:
                break
        channel.queue_delete("watched")
        async for push in events:
            if push.event == "queue.deleted" and push.data["name"] == "watched":
                break
        async for push in rows:
            if push.data["rows"] == [[["/", "watched"], None]]:
                break


async def test_it_keeps_users_vhosts_and_limits_over_kill_9(make_broker: Any) -> None:
    broker = make_broker()
    async with control(broker) as client:
        await client.call("vhost.put", name="shop/eu", description="d", as_user="guest")
        await client.call("user.put", name="eve", tags="monitoring", password="eves secret")
        await client.call(
            "permission.put", vhost="shop/eu", user="eve", configure=".*", write=".*", read=".*"
        )
        await client.call("vhost-limit.put", vhost="shop/eu", name="max-queues", value=1)
        await client.call("queue.declare", vhost="shop/eu", name="durable", durable=True)
        await client.call("session.end", session_id="old", expires_at=1 << 50)
    broker.kill()
    broker.start()
    async with control(broker) as client:
        connection = connect(broker, "eve", "eves secret", "shop/eu")
        channel = connection.channel()
        assert channel.queue_declare("durable", passive=True)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"queue limit .* reached"):
            channel.queue_declare("one too many")
        connection.close()
        users = json.loads((broker.data_dir / "users.json").read_text())
        epoch = next(user["epoch"] for user in users["users"] if user["name"] == "eve")
        session = {"user": "eve", "epoch": epoch}
        assert (await client.call("session.valid", **session, session_id="new"))["valid"]
        assert not (await client.call("session.valid", **session, session_id="old"))["valid"]


async def test_it_deletes_a_vhost_with_its_clients(make_broker: Any) -> None:
    broker = make_broker()
    async with control(broker) as client:
        await client.call("vhost.put", name="gone", as_user="guest")
        connection = connect(broker, vhost="gone")
        connection.channel().queue_declare("q", durable=True)
        await client.call("vhost.delete", name="gone", as_user="guest")
        with pytest.raises(ConnectionClosedByBroker, match="vhost 'gone' is deleted"):
            for _ in range(50):
                connection.process_data_events(0.1)
        with pytest.raises(AMQPConnectionError):
            connect(broker, vhost="gone")
        assert [row["name"] for row in (await client.call("list", noun="vhosts"))["items"]] == ["/"]
        await client.call("vhost.put", name="gone", as_user="guest")
        assert not (await client.call("list", noun="queues", vhost="gone"))["items"]


def test_it_starts_with_no_broken_users_file(make_broker: Any) -> None:
    broker = make_broker()
    broker.stop()
    path = broker.data_dir / "users.json"
    path.write_text(path.read_text().replace('"name": "guest"', '"name": guest', 1))
    with pytest.raises(AssertionError, match="ended with 78"):
        broker.start()
    lines = [line for line in broker.log().splitlines() if line.startswith("leveret broker: ")]
    assert len(lines) == 1
    assert "users.json: line 4, column" in lines[0]


async def test_it_moves_definitions_to_another_broker(make_broker: Any) -> None:
    one, other = make_broker(), make_broker()
    async with control(one) as client, control(other) as other_client:
        await client.call("vhost.put", name="shop", as_user="guest")
        in_shop = {"vhost": "shop"}
        arguments = {"x-custom": 7, "x-text": "t", "x-flag": True, "x-list": [1, "a"]}
        await client.call("queue.declare", **in_shop, name="q", durable=True, arguments=arguments)
        await client.call("exchange.declare", **in_shop, name="x", type="headers", durable=True)
        await client.call(
            "binding.create",
            **in_shop,
            source="x",
            destination="q",
            destination_type="queue",
            arguments={"x-match": "all", "n": 5},
        )
        exported = await client.call("definitions.export")
        await other_client.call("definitions.import", definitions=exported)
        again = await other_client.call("definitions.export")
        assert again == exported
        other.kill()
        other.start()
        async with control(other) as third:
            assert await third.call("definitions.export") == exported
        connect(other, vhost="shop").close()
