"""Three brokers in a ring: each message reaches each of them once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.bridges.conftest import Pair, taken, until
from tests.bridges.federated import Downstream, bind, declare_exchange, downstream_of, send

RING = 3


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    pairs = [Pair(tmp_path_factory.mktemp(f"ring{each}")) for each in range(RING)]
    for pair in pairs:
        pair.start()
    yield pairs
    for pair in pairs:
        pair.close()


@pytest.fixture
async def brokers(ring: list[Pair]) -> AsyncIterator[list[Downstream]]:
    """Each federates from the one before."""
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(downstream_of(ring[0]))]
        for pair in ring[1:]:
            found.append(await stack.enter_async_context(downstream_of(pair, found[0].name)))
        for at, each in enumerate(found):
            await declare_exchange(each.here, each.name)
            await bind(each.here, each.name, each.name)
            await each.upstream(ring[at - 1].broker.amqp_url, max_hops=RING - 1)
            await each.policy()
        for each in found:
            await each.until_running()
        yield found


async def test_each_message_reaches_each_broker_once(brokers: list[Downstream]) -> None:
    name = brokers[0].name

    async def reaches_all() -> bool:
        """Bindings of bindings have come, too."""
        await send(brokers[0].here, name, "warm", b"warm")
        return await count(brokers[2]) > 0

    await until(reaches_all)
    for each in brokers:
        async with each.here.channel() as channel:
            await channel.call("queue.purge", queue=name)
    for at, each in enumerate(brokers):
        for number in range(10):
            await send(each.here, name, "k", b"%d-%d" % (at, number))
    expected = {b"%d-%d" % (at, number) for at in range(RING) for number in range(10)}
    for each in brokers:
        found = [message.body for message in await taken(each.here, name, len(expected))]
        bodies = [body for body in found if body != b"warm"]
        assert len(bodies) == len(set(bodies))
        while set(bodies) != expected:
            more = await taken(each.here, name, 1)
            assert more[0].body not in bodies
            bodies += [message.body for message in more if message.body != b"warm"]
    # Whatever went round would come now.
    async with asyncio.timeout(60):
        for each in brokers:
            assert await count(each) == 0


async def count(each: Downstream) -> int:
    async with each.here.channel() as channel:
        reply = await channel.call("queue.declare", queue=each.name, passive=True)
    return int(reply["message_count"])
