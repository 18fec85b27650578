"""The history of a vhost: what is recorded, who may read it, and what it is good for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient, BrokerError
from management.history_rows import record
from tests.appliance import Appliance
from tests.control.own_vhost import own_vhost
from tests.control.replaying import replayed, taken
from tests.control.test_real_broker import connect, control, until

HISTORY = "amq.history"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
async def vhost(client: BrokerClient) -> AsyncIterator[str]:
    """A vhost of an unused name: a history is one for all of a vhost."""
    async with own_vhost(client, "history") as name:
        yield name


@pytest.fixture
def amqp(shared_broker: Appliance, vhost: str) -> Iterator[BlockingChannel]:
    connection = connect(shared_broker, vhost=vhost)
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    if connection.is_open:
        connection.close()


async def keep(
    client: BrokerClient, vhost: str, level: str, pattern: str = ".*", **more: Any
) -> None:
    """Sets a policy of the name of its pattern."""
    definition = {"history": level} | {key.replace("_", "-"): value for key, value in more.items()}
    await client.call(
        "policy.put", vhost=vhost, name=f"keep {pattern}", pattern=pattern, definition=definition
    )


async def records(client: BrokerClient, vhost: str) -> list[dict[str, Any]]:
    """All records of a vhost, oldest first."""
    rows = await client.call("stream.read", vhost=vhost, name=HISTORY, offset="first", count=10_000)
    return [record(row) for row in rows]


async def recorded(client: BrokerClient, vhost: str, count: int) -> list[dict[str, Any]]:
    """The same once they are so many: not every publish waits until its record can be read."""
    return await until(lambda: records(client, vhost), lambda rows: len(rows) >= count)


async def test_it_records_what_is_published_with_headers_that_tell_what_came_of_it(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("orders", durable=True)
    amqp.queue_declare("copies", durable=True)
    amqp.queue_bind("orders", "amq.fanout")
    amqp.queue_bind("copies", "amq.fanout")
    amqp.basic_publish("", "orders", b"before", PERSISTENT)
    await keep(client, vhost, "headers", "^orders$")
    properties = pika.BasicProperties(message_id="m1", headers={"order_id": 4711})
    amqp.basic_publish("", "orders", b"12345", properties)
    amqp.basic_publish("amq.fanout", "some.key", b"all", PERSISTENT)
    amqp.basic_publish("", "copies", b"not recorded", PERSISTENT)
    first, second = await records(client, vhost)
    row = await client.call("item", noun="queues", vhost=vhost, name="orders")
    assert row["messages"] == 3
    assert (first["exchange"], first["routing_key"]) == ("", "orders")
    assert (first["user"], first["outcome"]) == ("guest", "routed")
    assert (first["queues"], first["queue_count"]) == (["orders"], 1)
    assert (first["payload"], first["payload_bytes"]) == (None, 5)
    assert first["properties"] == {"message_id": "m1", "headers": {"order_id": 4711}}
    connections = await client.call("list", noun="connections", vhost=vhost)
    assert first["connection"] in [each["name"] for each in connections["items"]]
    assert (second["exchange"], second["routing_key"]) == ("amq.fanout", "some.key")
    assert sorted(second["queues"]) == ["copies", "orders"]
    await keep(client, vhost, "full", "^orders$")
    amqp.basic_publish("", "orders", b"whole", properties)
    await keep(client, vhost, "off", "^orders$")
    amqp.basic_publish("", "orders", b"after", properties)
    *_, third = await records(client, vhost)
    assert (third["payload"], third["payload_bytes"]) == (b"whole", 5)
    assert len(await records(client, vhost)) == 3


async def test_each_record_is_of_its_own_message_whatever_ways_a_publisher_takes_in_turn(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    await keep(client, vhost, "full")
    shapes = (
        pika.BasicProperties(delivery_mode=2),
        pika.BasicProperties(content_type="text/plain", headers={"own": "a"}),
        pika.BasicProperties(content_type="text/html", content_encoding="gzip"),
        pika.BasicProperties(content_type="text/html"),
        pika.BasicProperties(headers={"own": "another"}, message_id="m"),
    )
    names = [f"orders.{number}" for number in range(3)]
    for name in names:
        amqp.queue_declare(name, durable=True)
    sent = [
        (names[number % 3], shapes[number % 5], b"%d" % number * (number % 4))
        for number in range(30)
    ]
    for name, shape, body in sent:
        amqp.basic_publish("", name, body, shape)
    amqp.queue_delete(names[0])
    amqp.queue_declare(names[0], durable=True)
    amqp.basic_publish("", names[0], b"after it was declared again", shapes[0])
    rows = await recorded(client, vhost, 31)
    for row, (name, shape, body) in zip(rows, sent, strict=False):
        assert (row["routing_key"], row["queues"]) == (name, [name])
        assert (row["payload"], row["payload_bytes"]) == (body, len(body))
        listed = row["properties"]
        assert listed.get("content_type") == shape.content_type
        assert listed.get("content_encoding") == shape.content_encoding
        assert listed.get("headers") == shape.headers
        assert listed.get("message_id") == shape.message_id
    assert rows[30]["queues"] == [names[0]]


async def test_a_record_has_no_header_for_the_outcome_that_nearly_all_have(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("orders", durable=True)
    amqp.queue_bind("orders", "amq.topic", "orders")
    await keep(client, vhost, "headers", "^amq[.]topic$")
    amqp.basic_publish("amq.topic", "orders", b"", PERSISTENT)
    amqp.basic_publish("amq.topic", "nowhere", b"", PERSISTENT)
    rows = await client.call("stream.read", vhost=vhost, name=HISTORY, offset="first", count=10)
    named = [row["properties"]["headers"].get("x-history-outcome") for row in rows]
    assert named == [None, "unroutable"]
    assert [record(row)["outcome"] for row in rows] == ["routed", "unroutable"]


async def test_an_exchange_under_a_policy_records_what_finds_no_queue_and_what_is_refused(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    amqp.queue_declare("full", durable=True, arguments=arguments)
    amqp.queue_bind("full", "amq.topic", "full")
    await keep(client, vhost, "full", "^amq[.]topic$")
    amqp.basic_publish("amq.topic", "nowhere", b"lost", PERSISTENT)
    amqp.basic_publish("amq.topic", "full", b"taken", PERSISTENT)
    with pytest.raises(pika.exceptions.NackError):
        amqp.basic_publish("amq.topic", "full", b"refused", PERSISTENT)
    found = [(row["outcome"], row["payload"]) for row in await recorded(client, vhost, 3)]
    assert found == [("unroutable", b"lost"), ("routed", b"taken"), ("refused", b"refused")]


async def test_a_transaction_and_a_publish_over_http_are_recorded(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("q", durable=True)
    await keep(client, vhost, "full")
    transacted = amqp.connection.channel()
    transacted.tx_select()
    transacted.basic_publish("", "q", b"committed")
    transacted.tx_commit()
    transacted.basic_publish("", "q", b"rolled back")
    transacted.tx_rollback()
    await client.call(
        "exchange.publish",
        vhost=vhost,
        name="amq.default",
        routing_key="q",
        payload=b"by http",
        as_user="guest",
    )
    first, second = await recorded(client, vhost, 2)
    assert first["payload"] == b"committed"
    assert (second["payload"], second["connection"], second["user"]) == (
        b"by http",
        "HTTP API",
        "guest",
    )


async def test_a_large_body_that_several_queues_share_is_recorded_whole(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    for name in ("a", "b"):
        amqp.queue_declare(name, durable=True)
        amqp.queue_bind(name, "amq.fanout")
    await keep(client, vhost, "full", "^a$")
    for size in (100_000, 3 << 20, 9 << 20):
        body = bytes(range(256)) * (size // 256)
        amqp.basic_publish("amq.fanout", "", body, PERSISTENT)
        rows = await client.call("stream.read", vhost=vhost, name=HISTORY, offset="last", count=1)
        assert record(rows[-1])["payload"] == body


async def test_a_publisher_cannot_forge_what_the_record_says(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("q", durable=True)
    await keep(client, vhost, "headers")
    forged = {"x-history-user": "somebody", "x-history-odd": 1, "own": "stays"}
    amqp.basic_publish("", "q", b"x", pika.BasicProperties(headers=forged))
    (row,) = await client.call("stream.read", vhost=vhost, name=HISTORY, offset="first", count=9)
    headers = row["properties"]["headers"]
    assert headers["x-history-user"] == "guest"
    assert "x-history-odd" not in headers and headers["own"] == "stays"
    # The queue has the message as its publisher wrote it.
    (message,) = await client.call("queue.peek", vhost=vhost, name="q", count=1)
    assert message["properties"]["headers"] == forged


async def test_nobody_but_the_broker_writes_to_the_history(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("q", durable=True)
    await keep(client, vhost, "full")
    amqp.basic_publish("", HISTORY, b"forged", PERSISTENT)
    assert await records(client, vhost) == []
    for call, arguments in (
        ("binding.create", {"source": "amq.fanout", "destination": HISTORY}),
        ("transfer.start", {"name": "q", "mode": "copy", "target": HISTORY}),
    ):
        more = {"destination_type": "queue"} if call == "binding.create" else {}
        with pytest.raises(BrokerError, match="written by the broker alone"):
            await client.call(call, vhost=vhost, as_user="guest", **arguments, **more)
    with pytest.raises(BrokerError, match="change the policies first"):
        await client.call("queue.delete", vhost=vhost, name=HISTORY)
    await keep(client, vhost, "off")
    await client.call("queue.delete", vhost=vhost, name=HISTORY)
    await keep(client, vhost, "full")
    amqp.basic_publish("", "q", b"again", PERSISTENT)
    assert [row["payload"] for row in await records(client, vhost)] == [b"again"]


async def test_a_pattern_for_all_names_does_not_give_the_history(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("q", durable=True)
    await keep(client, vhost, "full")
    amqp.basic_publish("", "q", b"x", PERSISTENT)
    user = f"{vhost}-user"

    async def may(tags: str, read: str) -> bool:
        await client.call("user.put", name=user, password="long enough", tags=tags)
        await client.call(
            "permission.put", vhost=vhost, user=user, configure="", write="", read=read
        )
        try:
            rows = await client.call(
                "stream.read", vhost=vhost, name=HISTORY, offset="first", as_user=user
            )
        except BrokerError as error:
            assert error.status == 401 and "or a pattern that names it" in str(error)
            return False
        return bool(rows)

    try:
        assert not await may("management", ".*")
        assert not await may("monitoring", "^amq[.]")
        assert await may("management", r"^(q|amq\.history)$")
        assert await may("policymaker", ".*")
        assert await may("administrator", ".*")
        assert not await may("management", "")
    finally:
        await client.call("user.delete", name=user)


async def test_records_are_found_by_the_keys_of_all_policies_together(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    for name in ("orders", "bills"):
        amqp.queue_declare(name, durable=True)
    await keep(client, vhost, "headers", "^orders$", history_keys="header:order_id")
    await keep(client, vhost, "headers", "^bills$", history_keys=["message_id", "header:order_id"])
    for number in range(20):
        properties = pika.BasicProperties(message_id=f"m{number}", headers={"order_id": number % 5})
        amqp.basic_publish("", "orders" if number % 2 else "bills", b"x", properties)
    asked: dict[str, Any] = {"vhost": vhost, "name": HISTORY}
    found = await client.call("stream.search", **asked, key="order_id", value="3")
    rows = [record(row) for row in found["messages"]]
    assert [row["properties"]["message_id"] for row in rows] == ["m18", "m13", "m8", "m3"]
    assert [row["queues"] for row in rows] == [["bills"], ["orders"], ["bills"], ["orders"]]
    found = await client.call("stream.search", **asked, key="message_id", value="m7")
    assert len(found["messages"]) == 1 and found["complete"]
    # A key that no policy names any more is searched no more.
    await client.call("policy.delete", vhost=vhost, name="keep ^bills$")
    with pytest.raises(BrokerError, match="not indexed by 'message_id'"):
        await client.call("stream.search", **asked, key="message_id", value="m7")


async def test_the_longest_retention_of_all_policies_holds(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    async def age() -> str:
        row = await client.call("item", noun="queues", vhost=vhost, name=HISTORY)
        return row["arguments"]["x-max-age"]

    for name in ("a", "b"):
        amqp.queue_declare(name, durable=True)
    await keep(client, vhost, "headers", "^a$")
    assert await age() == "604800s"
    await keep(client, vhost, "headers", "^a$", history_retention="2h")
    assert await age() == "2h"
    await keep(client, vhost, "headers", "^b$", history_retention="1D")
    assert await age() == "1D"
    await client.call("policy.delete", vhost=vhost, name="keep ^b$")
    assert await age() == "2h"


async def test_a_replay_of_the_history_gives_the_messages_as_they_were(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("q", durable=True)
    amqp.queue_declare("again", durable=True)
    await keep(client, vhost, "headers", "^q$")
    amqp.basic_publish("", "q", b"headers only", PERSISTENT)
    await keep(client, vhost, "full", "^q$")
    properties = pika.BasicProperties(message_id="m", headers={"order_id": 1})
    amqp.basic_publish("", "q", b"whole", properties)
    row = await replayed(client, HISTORY, "again", vhost=vhost)
    assert (row["handed_over"], row["passed"], row["left"]) == (1, 1, 0)
    (message,) = taken(amqp, "again")
    assert (message.body, message.routing_key) == (b"whole", "q")
    headers = message.properties.headers
    assert headers["order_id"] == 1 and headers["x-replay-stream"] == HISTORY
    assert not any(name.startswith("x-history-") for name in headers)
    # It is recorded again where that is asked for, and not otherwise.
    await keep(client, vhost, "full", "^again$")
    await replayed(client, HISTORY, "again", vhost=vhost, first_offset=1)
    assert len(await records(client, vhost)) == 2
    row = await replayed(client, HISTORY, "again", vhost=vhost, first_offset=1, record=True)
    assert len(taken(amqp, "again")) == 2

    async def last() -> Any:
        return (await records(client, vhost))[-1]

    found = await until(last, lambda each: each["offset"] == 2)
    assert found["connection"] == f"replay {row['id']}" and found["payload"] == b"whole"


async def test_the_metrics_count_records(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    async def counted() -> float:
        page = (await client.call("metrics"))["body"].decode()
        (line,) = [row for row in page.splitlines() if row.startswith("rabbitmq_history_records")]
        return float(line.split(" ")[1])

    before = await counted()
    amqp.queue_declare("q", durable=True)
    await keep(client, vhost, "headers")
    amqp.basic_publish("", "q", b"x", PERSISTENT)
    assert await counted() - before == 1


async def test_definitions_leave_the_history_out(
    client: BrokerClient, vhost: str, amqp: BlockingChannel
) -> None:
    amqp.queue_declare("q", durable=True)
    await keep(client, vhost, "headers")
    found = await client.call("definitions.export", vhost=vhost)
    assert [row["name"] for row in found["queues"]] == ["q"]


async def test_records_that_share_headers_are_read_whole_from_any_place(
    client: BrokerClient, vhost: str, shared_broker: Appliance
) -> None:
    await keep(client, vhost, "headers", history_keys="header:x-history-connection")
    names = ["orders.0", "orders.1"]
    connections = [connect(shared_broker, vhost=vhost) for _ in names]
    channels = [each.channel() for each in connections]
    for channel, name in zip(channels, names, strict=True):
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True)
    # Each publisher goes on beyond the 64 KiB within which records share.
    long = pika.BasicProperties(headers={"own": "x" * 700})
    for number in range(240):
        channels[number % 2].basic_publish("", names[number % 2], b"y" * (number // 60), long)
    rows = await recorded(client, vhost, 240)
    assert [row["queues"] for row in rows] == [[names[number % 2]] for number in range(240)]
    assert [row["payload_bytes"] for row in rows] == [number // 60 for number in range(240)]
    by_way = {(row["connection"], row["queues"][0]) for row in rows}
    assert len(by_way) == 2
    for offset in (1, 77, 200, 239):
        (one,) = await client.call("stream.read", vhost=vhost, name=HISTORY, offset=offset, count=1)
        assert record(one) == rows[offset]
    found = await client.call(
        "stream.search",
        vhost=vhost,
        name=HISTORY,
        key="header:x-history-connection",
        value=rows[239]["connection"],
        max=1000,
    )
    assert len(found["messages"]) == 120
    for connection in connections:
        connection.close()
