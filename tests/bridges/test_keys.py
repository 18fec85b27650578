"""Keys of shovels and upstreams that no other test is about, and that none is without a test."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.aio import Connection
from broker.schema import shovel_keys, upstream_keys
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.bridges import matrix
from tests.bridges.conftest import Bench, Pair, declare, publish, taken, until
from tests.bridges.federated import (
    Downstream,
    bind,
    consume,
    declare_exchange,
    downstream_of,
    has_queue,
    unbind,
    until_not_routed,
    until_routed,
)

HERE = Path(__file__).parent


@pytest.fixture
async def down(pair: Pair) -> AsyncIterator[Downstream]:
    async with downstream_of(pair) as found:
        await declare_exchange(found.here, found.name)
        yield found


@pytest.fixture
async def above(far: Appliance) -> AsyncIterator[BrokerClient]:
    """What the other broker says of itself."""
    client = BrokerClient(far.control_socket)
    yield client
    await client.close()


def test_every_key_names_tests_that_there_are() -> None:
    assert matrix.SHOVELS.keys() == shovel_keys.KEYS.keys()
    assert matrix.FORMER.keys() == shovel_keys.OLDER.keys()
    assert matrix.UPSTREAMS.keys() == upstream_keys.KEYS.keys()
    for rows in (matrix.SHOVELS, matrix.FORMER, matrix.UPSTREAMS):
        for key, tests in rows.items():
            assert tests, key
            for file, name in tests:
                text = (HERE / file).read_text()
                assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (key, file, name)


# Shovels.


async def test_local_is_this_broker_and_amqp10_is_stored_and_does_not_run(bench: Bench) -> None:
    bodies = await bench.publish(2)
    await bench.put(src_protocol="local", dest_protocol="local", dest_queue=bench.target)
    assert [one.body for one in await taken(bench.here, bench.target, 2)] == bodies
    for end in ("src_protocol", "dest_protocol"):
        await bench.put(**{end: "amqp10"}, dest_queue=bench.target)
        row = await bench.until(lambda row: row["state"] == "stopped")
        assert "AMQP 1.0 (amqp10) is stored and does not run" in row["reason"]
        assert row[end] == "amqp10"


async def test_queues_that_are_not_there_are_declared_with_their_arguments(
    bench: Bench, above: BrokerClient, far: Appliance
) -> None:
    source = f"{bench.queue}-new"
    await bench.put(
        src_queue=source,
        src_queue_args={"x-max-length": 100},
        dest_uri=far.amqp_url,
        dest_queue=bench.target,
        dest_queue_args={"x-message-ttl": 3_600_000, "x-max-priority": 5},
    )
    await bench.until_state("running")
    here = await bench.control.call("item", noun="queues", vhost="/", name=source)
    assert (here["durable"], here["arguments"]) == (True, {"x-max-length": 100})
    there = await above.call("item", noun="queues", vhost="/", name=bench.target)
    assert there["durable"] is True
    assert there["arguments"] == {"x-message-ttl": 3_600_000, "x-max-priority": 5}


async def test_consumer_arguments_reach_the_source(bench: Bench) -> None:
    await bench.put(src_consumer_args={"x-priority": 7}, dest_queue=bench.target)
    await bench.until_state("running")
    rows = await bench.control.call("list", noun="consumers", vhost="/")
    (consumer,) = [row for row in rows["items"] if row["queue"]["name"] == bench.queue]
    assert consumer["arguments"] == {"x-priority": 7}


async def test_no_more_is_under_way_than_the_prefetch(
    bench: Bench, there: Connection, far: Appliance
) -> None:
    async with there.channel() as channel:
        await declare(channel, bench.target, x_max_length=1, x_overflow="reject-publish")
        await publish(channel, bench.target, 1)
    await bench.publish(50)
    await bench.put(dest_uri=far.amqp_url, dest_queue=bench.target, src_prefetch_count=7)
    row = await bench.until(lambda row: row["state"] == "blocked" and row["pending"] == 7)
    queue = await bench.control.call("item", noun="queues", vhost="/", name=bench.queue)
    assert row["held"] <= 7
    assert (queue["messages_ready"], queue["messages_unacknowledged"]) == (43, 7)


async def test_a_source_that_must_exist_is_not_declared(bench: Bench) -> None:
    source = f"{bench.queue}-later"
    await bench.put(src_queue=source, src_predeclared=True, dest_queue=bench.target)
    row = await bench.until_state("error")
    assert f"no queue '{source}'" in row["reason"]
    await bench.declare(source)
    await bench.until_state("running")


async def test_the_next_try_comes_after_the_reconnect_delay(bench: Bench) -> None:
    uri = "amqp://guest:guest@127.0.0.1:1"
    await bench.put(dest_uri=uri, dest_queue=bench.target, reconnect_delay=400)
    row = await bench.until_state("error")
    assert 300_000 <= row["next_try"] - row["since"] <= 500_100


# Upstreams.


async def test_a_link_tries_the_next_of_several_uris(down: Downstream, far: Appliance) -> None:
    await down.upstream(["amqp://guest:guest@127.0.0.1:1", far.amqp_url])
    await down.policy()
    row = await down.until_running()
    assert row["uri"] == f"amqp://127.0.0.1:{far.amqp_port}/"


async def test_the_next_try_of_a_link_comes_after_the_reconnect_delay(down: Downstream) -> None:
    await down.upstream("amqp://guest:guest@127.0.0.1:1", reconnect_delay=400)
    await down.policy()
    (row,) = await down.until_state("error")
    assert 300_000 <= row["next_try"] - row["since"] <= 500_100


async def test_the_queue_of_a_link_has_the_arguments_of_the_upstream(
    down: Downstream, far: Appliance, above: BrokerClient
) -> None:
    keys = {"expires": 3_600_000, "message_ttl": 60_000, "ha_policy": "all"}
    await down.upstream(far.amqp_url, **keys, queue_type="classic")
    await down.policy()
    await down.until_running()
    name = (await down.control.call("federation.follow", version=-1))["name"]
    queue = f"federation: {down.name} -> {name}"
    row = await above.call("item", noun="queues", vhost="/", name=queue)
    assert row["durable"] is True
    assert row["arguments"] == {
        "x-expires": 3_600_000,
        "x-message-ttl": 60_000,
        "x-ha-policy": "all",
        "x-queue-type": "classic",
        "x-internal-purpose": "federation",
    }


@pytest.mark.parametrize("mode", ["multiple", "single"])
async def test_bindings_follow_without_waiting_for_answers(
    down: Downstream, far: Appliance, there: Connection, mode: str
) -> None:
    name = down.name
    await bind(down.here, name, name, "first")
    await down.upstream(far.amqp_url, bind_nowait=True, channel_use_mode=mode)
    await down.policy()
    await down.until_running()
    await until_routed(there, name, "first", b"1")
    await bind(down.here, name, name, "late")
    await until_routed(there, name, "late", b"2")
    await unbind(down.here, name, name, "late")
    await until_not_routed(there, name, "late")


async def test_a_link_consumes_from_the_queue_and_with_the_tag_that_are_named(
    down: Downstream, far: Appliance, there: Connection, above: BrokerClient
) -> None:
    source = f"{down.name}-source"
    async with there.channel() as channel:
        await declare(channel, source)
        bodies = await publish(channel, source, 5)
    async with down.here.channel() as channel:
        await declare(channel, down.name)
    await down.upstream(far.amqp_url, queue=source, consumer_tag="the-tag")
    await down.policy("queues")
    found: list[Any] = []
    await consume(down.here, down.name, found)

    async def came() -> bool:
        return len(found) == 5

    await until(came)
    assert [message.body for message in found] == bodies
    assert not await has_queue(there, down.name)
    rows = await above.call("list", noun="consumers", vhost="/")
    tags = [row["consumer_tag"] for row in rows["items"] if row["queue"]["name"] == source]
    assert tags == ["the-tag"]
