"""Queues that take messages from those of another broker while their own consumers want more."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.client.aio import Connection
from broker.client.message import Message
from tests.appliance import Appliance
from tests.bridges.conftest import Pair, declare, ready, until
from tests.bridges.federated import Downstream, consume, downstream_of, send


@pytest.fixture
async def down(pair: Pair, far: Appliance, there: Connection) -> AsyncIterator[Downstream]:
    """A queue here and one there, federated, without consumers."""
    async with downstream_of(pair) as found:
        for connection in (there, found.here):
            async with connection.channel() as channel:
                await declare(channel, found.name)
        await found.upstream(far.amqp_url, prefetch_count=5)
        await found.policy("queues")
        await found.until_running()
        yield found


async def fill(connection: Connection, queue: str, count: int) -> set[bytes]:
    bodies = {b"%d" % number for number in range(count)}
    for body in sorted(bodies):
        assert await send(connection, "", queue, body, headers={"own": 1})
    return bodies


async def came(found: list[Message], count: int) -> None:
    async def is_so() -> bool:
        return len(found) >= count

    await until(is_so, lambda: f"{len(found)} of {count} came")


async def test_messages_move_once_and_only_when_a_consumer_is_here(
    down: Downstream, there: Connection, far: Appliance
) -> None:
    bodies = await fill(there, down.name, 40)
    assert await ready(down.here, down.name) == 0
    assert await ready(there, down.name) == 40
    found: list[Message] = []
    await consume(down.here, down.name, found)
    await came(found, 40)
    assert {message.body for message in found} == bodies
    assert len(found) == 40
    assert await ready(there, down.name) == 0
    headers = found[0].decoded()["headers"]
    assert headers["own"] == 1
    assert (headers["x-original-exchange"], headers["x-original-routing-key"]) == ("", down.name)
    (passed,) = headers["x-received-from"]
    assert passed["uri"] == f"amqp://127.0.0.1:{far.amqp_port}/"
    assert (passed["queue"], passed["visit-count"]) == (down.name, 1)
    await down.until(lambda rows: rows[0]["message_count"] == 40 and not rows[0]["pending"])


async def test_it_takes_no_more_than_a_slow_consumer_and_the_prefetch(
    down: Downstream, there: Connection
) -> None:
    await fill(there, down.name, 40)
    channel = await down.here.open_channel()
    found: list[Message] = []
    await channel.consume(down.name, lambda _, batch: found.extend(batch.messages()), prefetch=1)
    await came(found, 1)

    async def has_stopped() -> bool:
        """The consumer at the upstream is gone, and with it what was under way."""
        async with there.channel() as other:
            reply = await other.call("queue.declare", queue=down.name, passive=True)
        return bool(reply["consumer_count"] == 0)

    await until(has_stopped)
    left = await ready(there, down.name)
    assert left > 0, "nobody here wants all of them"
    assert left + await ready(down.here, down.name) + len(found) == 40


async def test_consumers_of_the_upstream_come_first(down: Downstream, there: Connection) -> None:
    here: list[Message] = []
    at_upstream: list[Message] = []
    await consume(there, down.name, at_upstream)
    await consume(down.here, down.name, here)

    async def both_consume() -> bool:
        async with there.channel() as channel:
            reply = await channel.call("queue.declare", queue=down.name, passive=True)
        return bool(reply["consumer_count"] == 2)

    await until(both_consume)
    await fill(there, down.name, 20)
    await came(at_upstream, 20)
    assert here == []


async def test_two_queues_that_federate_each_other_move_messages_to_consumers(
    pair: Pair, down: Downstream, there: Connection
) -> None:
    """Both queues are of one broker here: each is the upstream of the other."""
    other = f"{down.name}-other"
    async with down.here.channel() as channel:
        await declare(channel, other)
    uri = "amqp://"
    await down.upstream(uri, name=f"{down.name}-a", queue=other)
    await down.upstream(uri, name=f"{down.name}-b", queue=down.name)
    await down.policy("queues", federation_upstream=f"{down.name}-a")
    await down.control.call(
        "policy.put",
        vhost="/",
        name=f"{down.name}-other",
        pattern=f"^{other}$",
        definition={"federation-upstream": f"{down.name}-b"},
        apply_to="queues",
        priority=2,
    )
    await down.until_running()
    bodies = await fill(down.here, other, 20)
    found: list[Message] = []
    await consume(down.here, down.name, found)
    await came(found, 20)
    assert {message.body for message in found} == bodies
    await down.control.call("policy.delete", vhost="/", name=f"{down.name}-other")


async def test_a_queue_that_is_not_there_is_declared_as_the_one_here(
    pair: Pair, far: Appliance, there: Connection
) -> None:
    async with downstream_of(pair) as down:
        async with down.here.channel() as channel:
            await declare(channel, down.name, x_max_priority=3)
        await down.upstream(far.amqp_url)
        await down.policy("queues")
        await down.until_running()
        async with there.channel() as channel:
            await declare(channel, down.name, x_max_priority=3)
        found: list[Message] = []
        await consume(down.here, down.name, found)
        await fill(there, down.name, 3)
        await came(found, 3)


async def test_no_message_is_lost_when_the_process_is_killed_in_the_middle(
    down: Downstream, there: Connection
) -> None:
    found: list[Message] = []
    await consume(down.here, down.name, found)
    bodies = await fill(there, down.name, 60)
    for _ in range(3):
        down.pair.bridges.kill()
        bodies |= {b"again-%d" % number for number in range(20)}
        for number in range(20):
            await send(there, "", down.name, b"again-%d" % number)
        down.pair.bridges.start(wait=False)
        await down.until_running()

    async def all_came() -> bool:
        return {message.body for message in found} == bodies

    await until(all_came, lambda: f"{len(found)} came")
