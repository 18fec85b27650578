"""Federation from Debian's RabbitMQ, and of RabbitMQ from this broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from broker.client.aio import Connection, connect
from broker.client.message import Message
from broker.client.uri import Endpoint
from tests.appliance import Appliance
from tests.bench.rabbitmq import NotAvailable, RabbitMQ
from tests.bridges.conftest import Pair, taken, until
from tests.bridges.federated import (
    Downstream,
    bind,
    consume,
    declare_exchange,
    downstream_of,
    has_queue,
    send,
    unbind,
    until_not_routed,
    until_routed,
)


@pytest.fixture(scope="module")
def federating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ with its plugin of federation."""
    try:
        broker = RabbitMQ(tmp_path_factory.mktemp("federating"), ("rabbitmq_federation",))
        broker.start()
    except NotAvailable as error:
        pytest.skip(f"no RabbitMQ: {error}")
    yield broker
    broker.stop()


@pytest.fixture(params=["with its plugin of federation", "without"])
async def rabbit(
    request: pytest.FixtureRequest, rabbitmq: RabbitMQ, federating: RabbitMQ
) -> AsyncIterator[tuple[RabbitMQ, Connection]]:
    """A RabbitMQ as upstream."""
    broker = rabbitmq if request.param == "without" else federating
    async with await connect(Endpoint(port=broker.port)) as connection:
        yield broker, connection


@pytest.fixture
async def down(pair: Pair) -> AsyncIterator[Downstream]:
    async with downstream_of(pair) as found:
        await declare_exchange(found.here, found.name)
        yield found


async def test_an_exchange_here_takes_messages_from_rabbitmq(
    down: Downstream, rabbit: tuple[RabbitMQ, Connection]
) -> None:
    broker, there = rabbit
    name = down.name
    await bind(down.here, name, name, "a.#")
    await down.upstream(f"amqp://guest:guest@127.0.0.1:{broker.port}")
    await down.policy()
    await down.until_running()
    assert await send(there, name, "a.b", b"one", headers={"own": 7})
    assert not await send(there, name, "other", b"two")
    (message,) = await taken(down.here, name, 1)
    headers = message.decoded()["headers"]
    (passed,) = headers["x-received-from"]
    assert passed["cluster-name"].startswith(f"bench{broker.port}@")
    assert (passed["exchange"], passed["redelivered"]) == (name, False)
    await bind(down.here, f"{name}-2", name, "late")
    await until_routed(there, name, "late", b"late")
    await unbind(down.here, f"{name}-2", name, "late")
    await until_not_routed(there, name, "late")
    # What has come as far as it may does not come here, whoever leaves it out.
    far = {"x-received-from": [{"uri": "amqp://x", "exchange": name, "cluster-name": "x"}]}
    await send(there, name, "a.far", b"far", headers=far)
    assert await send(there, name, "a.near", b"near")
    (message,) = await taken(down.here, name, 1)
    assert message.body == b"near"
    await down.until(lambda rows: rows[0]["pending"] == 0)
    queue = f"federation: {name} -> {await here_name(down)}"
    await down.control.call("policy.delete", vhost="/", name=name)

    async def is_gone() -> bool:
        return not await has_queue(there, queue)

    await until(is_gone)


async def here_name(down: Downstream) -> str:
    return str((await down.control.call("federation.follow", version=-1))["name"])


async def test_an_exchange_of_rabbitmq_takes_messages_from_here(
    far: Appliance, there: Connection, federating: RabbitMQ, down: Downstream
) -> None:
    name = down.name
    await declare_exchange(there, name)
    done = federating.control(
        "set_parameter",
        "federation-upstream",
        name,
        json.dumps({"uri": f"amqp://guest:guest@127.0.0.1:{far.amqp_port}", "max-hops": 1}),
    )
    assert done.returncode == 0, done.stderr
    async with await connect(Endpoint(port=federating.port)) as rabbit:
        await declare_exchange(rabbit, name)
        await bind(rabbit, name, name, "a.#")
        definition = json.dumps({"federation-upstream": name})
        done = federating.control(
            "set_policy", "--apply-to", "exchanges", name, f"^{name}$", definition
        )
        assert done.returncode == 0, done.stderr
        await until_routed(there, name, "a.b", b"one")
        found = await taken(rabbit, name, 1)
        assert found[0].body == b"one"
        (passed,) = found[0].decoded()["headers"]["x-received-from"]
        assert passed["cluster-name"].startswith("leveret@")
        passed_on = {"x-received-from": [{"uri": "amqp://x", "cluster-name": "x"}]}
        assert not await send(there, name, "a.b", b"far", headers=passed_on), "max-hops holds"
        await bind(rabbit, name, name, "late")
        await until_routed(there, name, "late", b"late")
        federating.control("clear_policy", name)
        await until_not_routed(there, name, "a.b")
    federating.control("clear_parameter", "federation-upstream", name)


async def test_a_queue_here_takes_messages_from_rabbitmq(
    down: Downstream, rabbit: tuple[RabbitMQ, Connection]
) -> None:
    broker, there = rabbit
    name = down.name
    for connection in (there, down.here):
        async with connection.channel() as channel:
            await channel.call("queue.declare", queue=name, durable=True)
    for number in range(30):
        assert await send(there, "", name, b"%d" % number)
    await down.upstream(f"amqp://guest:guest@127.0.0.1:{broker.port}")
    await down.policy("queues")
    await down.until_running()
    found: list[Message] = []
    await consume(down.here, name, found)

    async def came() -> bool:
        return len(found) == 30

    await until(came)
    headers = found[0].decoded()["headers"]
    assert (headers["x-original-exchange"], headers["x-original-routing-key"]) == ("", name)
    (passed,) = headers["x-received-from"]
    assert (passed["queue"], passed["visit-count"]) == (name, 1)
