"""The type of queues that are declared without one, vhost by vhost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.control.own_vhost import own_vhost
from tests.control.test_real_broker import control


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


@pytest.fixture
async def vhost(client: BrokerClient) -> AsyncIterator[str]:
    """A vhost of the test's own that guest may use."""
    async with own_vhost(client, "typed") as name:
        yield name


def connect(broker: Appliance, vhost: str) -> Client:
    return Client.open((broker.host, broker.amqp_port), virtual_host=vhost)


async def queue(client: BrokerClient, vhost: str, name: str) -> Any:
    return await client.call("item", noun="queues", vhost=vhost, name=name)


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
async def test_it_is_the_type_of_queues_that_name_none(
    client: BrokerClient, shared_broker: Appliance, vhost: str, kind: str
) -> None:
    await client.call("vhost.put", name=vhost, default_queue_type=kind)
    amqp = connect(shared_broker, vhost)
    amqp.call(1, "queue.declare", queue="none named", durable=True)
    amqp.call(1, "queue.declare", queue="none named", durable=True)
    if kind != "classic":
        named = {"x-queue-type": kind}
        amqp.call(1, "queue.declare", queue="none named", durable=True, arguments=named)
    row = await queue(client, vhost, "none named")
    assert row["type"] == kind
    assert row["arguments"] == ({} if kind == "classic" else {"x-queue-type": kind})
    await client.call("queue.declare", vhost=vhost, name="by HTTP", durable=True)
    assert (await queue(client, vhost, "by HTTP"))["type"] == kind
    named = {"x-queue-type": "classic"}
    amqp.call(1, "queue.declare", queue="named", durable=True, arguments=named)
    assert (await queue(client, vhost, "named"))["type"] == "classic"
    for name, flags in (
        ("transient", {}),
        ("exclusive", {"durable": True, "exclusive": True}),
        ("auto-delete", {"durable": True, "auto_delete": True}),
    ):
        amqp.call(1, "queue.declare", queue=name, **flags)
        assert (await queue(client, vhost, name))["type"] == "classic"
    amqp.close()


async def test_queues_that_are_there_keep_their_type(
    client: BrokerClient, shared_broker: Appliance, vhost: str
) -> None:
    amqp = connect(shared_broker, vhost)
    amqp.call(1, "queue.declare", queue="old", durable=True)
    await client.call("vhost.put", name=vhost, default_queue_type="quorum")
    amqp.call(1, "queue.declare", queue="old", durable=True)
    assert (await queue(client, vhost, "old"))["type"] == "classic"
    # What is not said stays, and the empty text is the way back.
    await client.call("vhost.put", name=vhost, description="shop")
    rows = await client.call("list", noun="vhosts")
    (row,) = [row for row in rows["items"] if row["name"] == vhost]
    assert (row["default_queue_type"], row["description"]) == ("quorum", "shop")
    await client.call("vhost.put", name=vhost, default_queue_type="")
    amqp.call(1, "queue.declare", queue="new", durable=True)
    assert (await queue(client, vhost, "new"))["type"] == "classic"
    amqp.close()


async def test_a_default_stream_refuses_what_no_stream_has(
    client: BrokerClient, shared_broker: Appliance, vhost: str
) -> None:
    await client.call("vhost.put", name=vhost, default_queue_type="stream")
    amqp = connect(shared_broker, vhost)
    arguments = {"x-message-ttl": 1000}
    amqp.send_method(1, "queue.declare", queue="q", durable=True, arguments=arguments)
    amqp.expect_channel_close(1, 406, 50, 10, "'x-message-ttl'")
    amqp.close()


@pytest.mark.parametrize("kind", ["Quorum", "lazy", "x" * 300, "\n"])
async def test_a_type_that_is_none_is_refused(client: BrokerClient, vhost: str, kind: str) -> None:
    with pytest.raises(BrokerError, match="unsupported default_queue_type") as refusal:
        await client.call("vhost.put", name=vhost, default_queue_type=kind)
    assert refusal.value.status == 400


async def test_it_is_in_the_definitions(client: BrokerClient, vhost: str) -> None:
    """Queues in them are of the type that they were."""
    definitions = {
        "vhosts": [{"name": vhost, "default_queue_type": "stream"}],
        "queues": [{"vhost": vhost, "name": "old", "durable": True, "arguments": {}}],
    }
    await client.call("definitions.import", definitions=definitions)
    assert (await queue(client, vhost, "old"))["type"] == "classic"
    exported = await client.call("definitions.export")
    (row,) = [row for row in exported["vhosts"] if row["name"] == vhost]
    assert row["default_queue_type"] == "stream"


def test_it_survives_a_restart(make_broker: Callable[..., Appliance]) -> None:
    broker = make_broker()
    path = broker.data_dir / "vhosts.json"
    with connect(broker, "/") as amqp:
        amqp.close()
    assert broker.stop() == 0
    text = path.read_text() if path.exists() else '[{"name": "/"}]'
    path.write_text(text.replace('"name"', '"default_queue_type": "stream", "name"', 1))
    broker.start()
    with connect(broker, "/") as amqp:
        amqp.call(1, "queue.declare", queue="q", durable=True)
        amqp.send_method(1, "basic.get", queue="q")
        amqp.expect_connection_close(540, 60, 70, "not supported by stream queues")
