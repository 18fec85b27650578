"""Exchanges that take messages from those of another broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.client.aio import Connection
from broker.client.message import Message
from management.broker_client import BrokerClient
from tests.appliance import Appliance
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


@pytest.fixture
async def down(pair: Pair) -> AsyncIterator[Downstream]:
    async with downstream_of(pair) as found:
        await declare_exchange(found.here, found.name)
        yield found


@pytest.fixture
async def federated(
    down: Downstream, far: Appliance, there: Connection
) -> AsyncIterator[Downstream]:
    """An exchange with a queue, whose link runs."""
    await bind(down.here, down.name, down.name, "a.#")
    await down.upstream(far.amqp_url)
    await down.policy()
    await down.until_running()
    yield down


async def test_messages_of_the_upstream_come_with_a_note_of_where_they_were(
    federated: Downstream, there: Connection, far: Appliance
) -> None:
    name = federated.name
    assert await send(there, name, "a.b", b"one", headers={"own": 7}, message_id="m")
    assert not await send(there, name, "other", b"two"), "no queue of the downstream wants it"
    (message,) = await taken(federated.here, name, 1)
    assert (message.exchange, message.routing_key) == (name.encode(), b"a.b")
    assert message.body == b"one"
    properties = message.decoded()
    assert properties["message_id"] == "m"
    headers = properties["headers"]
    assert headers["own"] == 7
    (passed,) = headers["x-received-from"]
    assert passed["uri"] == f"amqp://127.0.0.1:{far.amqp_port}/"
    assert (passed["exchange"], passed["vhost"], passed["redelivered"]) == (name, "/", False)
    assert passed["cluster-name"].startswith("leveret@")


async def test_bindings_follow_and_go(federated: Downstream, there: Connection) -> None:
    name = federated.name
    await bind(federated.here, f"{name}-2", name, "late.key")
    await until_routed(there, name, "late.key", b"late")
    found = await taken(federated.here, f"{name}-2", 1)
    assert {message.body for message in found} == {b"late"}
    await unbind(federated.here, f"{name}-2", name, "late.key")
    await until_not_routed(there, name, "late.key")


async def test_a_binding_of_two_queues_goes_with_the_last_of_them(
    federated: Downstream, there: Connection
) -> None:
    name = federated.name
    for queue in (f"{name}-2", f"{name}-3"):
        await bind(federated.here, queue, name, "both")
    await until_routed(there, name, "both", b"x")
    async with federated.here.channel() as channel:
        await channel.call("queue.delete", queue=f"{name}-2")
        # Changes are mirrored in their order: once this one has come, so has the one before.
        await channel.call("queue.bind", queue=name, exchange=name, routing_key="mark")
    await until_routed(there, name, "mark", b"x")
    assert await send(there, name, "both", b"x")
    async with federated.here.channel() as channel:
        await channel.call("queue.delete", queue=f"{name}-3")
    await until_not_routed(there, name, "both")


async def test_what_was_published_while_the_link_was_down_comes_later(
    federated: Downstream, there: Connection
) -> None:
    name = federated.name
    federated.pair.bridges.kill()
    for number in range(20):
        assert await send(there, name, "a", b"%d" % number)
    federated.pair.bridges.start(wait=False)
    found = await taken(federated.here, name, 20)
    assert [message.body for message in found] == [b"%d" % number for number in range(20)]
    # The link has filled another internal exchange meanwhile, and bindings still follow.
    await bind(federated.here, name, name, "b")
    await until_routed(there, name, "b", b"x")


async def test_the_end_of_a_link_takes_its_queue_at_the_upstream_along(
    federated: Downstream, there: Connection
) -> None:
    queues = await upstream_queues(there, federated)
    await federated.control.call("policy.delete", vhost="/", name=federated.name)
    await federated.until(lambda rows: rows == [])

    async def is_gone() -> bool:
        return not await has_queue(there, queues)

    await until(is_gone)
    assert not await send(there, federated.name, "a", b"x")


async def test_with_never_the_queue_stays_and_collects(
    federated: Downstream, far: Appliance, there: Connection
) -> None:
    name = federated.name
    await federated.upstream(far.amqp_url, resource_cleanup_mode="never")
    await federated.until_running()
    await federated.control.call("policy.delete", vhost="/", name=name)
    await federated.until(lambda rows: rows == [])
    assert await send(there, name, "a", b"collected")
    await federated.policy()
    (message,) = await taken(federated.here, name, 1)
    assert message.body == b"collected"


async def test_a_changed_upstream_loses_nothing_that_waits(
    federated: Downstream, far: Appliance, there: Connection
) -> None:
    for prefetch in (7, 8, 9):
        await federated.upstream(far.amqp_url, prefetch_count=prefetch)
        assert await send(there, federated.name, "a", b"%d" % prefetch)
    found: list[Message] = []
    await consume(federated.here, federated.name, found)

    async def all_came() -> bool:
        # What was not acknowledged upstream yet when the link began anew comes twice.
        return {message.body for message in found} == {b"7", b"8", b"9"}

    await until(all_came)


async def test_it_says_why_an_upstream_is_not_reached_and_comes_back(
    down: Downstream, far: Appliance
) -> None:
    await down.upstream("amqp://guest:s3cret@127.0.0.1:1")
    await down.policy()
    (row,) = await down.until_state("error")
    assert row["status"] == "error"
    assert "refused" in row["error"]
    assert "s3cret" not in str(row)
    assert await down.control.call("federation.list", vhost="/", down=True)
    await down.upstream(far.amqp_url)
    row = await down.until_running()
    assert row["status"] == "running"
    assert "error" not in row


async def test_a_restart_opens_the_connections_anew(federated: Downstream) -> None:
    (row,) = await federated.until(lambda rows: rows[0]["counts"]["connects"] == 1)
    await federated.control.call("federation.restart", vhost="/", id=row["id"])
    await federated.until(lambda rows: rows[0]["counts"]["connects"] == 2)
    await federated.until_running()


async def test_the_exchange_of_the_upstream_may_have_another_name(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    source = f"{down.name}-source"
    await bind(down.here, down.name, down.name, "k")
    await down.upstream(far.amqp_url, exchange=source)
    await down.policy()
    row = await down.until_running()
    assert (row["exchange"], row["upstream_exchange"]) == (down.name, source)
    await until_routed(there, source, "k", b"x")
    (message,) = await taken(down.here, down.name, 1)
    assert message.exchange == down.name.encode()


async def test_a_set_names_upstreams_and_overrules_their_keys(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    await bind(down.here, down.name, down.name, "k")
    await down.upstream(far.amqp_url)
    sources = [f"{down.name}-1", f"{down.name}-2"]
    entries = [{"upstream": down.name, "exchange": source} for source in sources]
    await down.put("federation-upstream-set", down.name, entries)
    await down.policy(federation_upstream_set=down.name)
    await down.until(lambda rows: [row["state"] for row in rows] == ["running", "running"])
    for source in sources:
        await until_routed(there, source, "k", source.encode())
    found = await taken(down.here, down.name, 2)
    assert sorted(message.body.decode() for message in found) == sources


async def test_a_pattern_names_upstreams(down: Downstream, far: Appliance) -> None:
    await down.upstream(far.amqp_url, name=f"{down.name}-1")
    await down.upstream(far.amqp_url, name=f"{down.name}-2", exchange="amq.topic")
    await down.policy(federation_upstream_pattern=f"^{down.name}-")
    rows = await down.until(lambda rows: [row["state"] for row in rows] == ["running"] * 2)
    assert {row["upstream"] for row in rows} == {f"{down.name}-1", f"{down.name}-2"}


@pytest.mark.parametrize("ack_mode", ["on-publish", "no-ack"])
async def test_it_acknowledges_in_other_ways(
    down: Downstream, far: Appliance, there: Connection, ack_mode: str
) -> None:
    await bind(down.here, down.name, down.name, "k")
    await down.upstream(far.amqp_url, ack_mode=ack_mode, channel_use_mode="single")
    await down.policy()
    await down.until_running()
    for number in range(50):
        assert await send(there, down.name, "k", b"%d" % number)
    assert len(await taken(down.here, down.name, 50)) == 50
    await down.until(lambda rows: rows[0]["message_count"] == 50)


async def test_a_user_id_is_removed_unless_it_is_trusted(
    federated: Downstream, far: Appliance, there: Connection
) -> None:
    assert await send(there, federated.name, "a", b"x", user_id="guest")
    (message,) = await taken(federated.here, federated.name, 1)
    assert "user_id" not in message.decoded()
    # Acknowledged upstream: it does not come again when the link begins anew.
    await federated.until(lambda rows: rows[0]["message_count"] == 1 and not rows[0]["pending"])
    await federated.upstream(far.amqp_url, trust_user_id=True)
    await federated.until(lambda rows: rows[0]["counts"]["connects"] == 2)
    assert await send(there, federated.name, "a", b"x", user_id="guest")
    (message,) = await taken(federated.here, federated.name, 1)
    assert message.decoded()["user_id"] == "guest"


async def test_a_user_who_loses_the_permission_stops_the_link(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    user = f"{down.name}-user"
    await down.control.call("user.put", name=user, password="p", tags="policymaker")
    named = {"user": user, "vhost": "/"}
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    await down.control.call("permission.put", **named, **everything)
    # A policymaker does not reach guest, who is of this machine only, with a link.
    above = BrokerClient(far.control_socket)
    await above.call("user.put", name=user, password="p", tags=[])
    await above.call("permission.put", **named, **everything)
    await above.close()
    await bind(down.here, down.name, down.name, "k")
    await down.upstream(f"amqp://{user}:p@{far.host}:{far.amqp_port}", user=user)
    await down.policy()
    assert (await down.until_running())["owner"] == user
    await down.control.call("permission.put", **named, **{**everything, "write": "nothing"})
    await until_routed(there, down.name, "k", b"kept")
    (row,) = await down.until_state("stopped")
    assert row["status"] == "shutdown"
    assert "access" in row["error"]
    await down.control.call("user.delete", name=user)


async def upstream_queues(there: Connection, down: Downstream) -> str:
    """The name of the queue that the one link has at the upstream."""
    name = (await down.control.call("federation.follow", version=-1))["name"]
    queue = f"federation: {down.name} -> {name}"
    assert await has_queue(there, queue)
    return queue
