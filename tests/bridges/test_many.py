"""Many links at once: they begin at a pace, hold up nobody, and take little memory.

LEVERET_TEST_LINKS=2000 is the long form (`make bridge-links`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.client.aio import Connection
from broker.client.message import Message
from broker.settings.config import Config
from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.bridges.conftest import Pair, until
from tests.bridges.federated import (
    Downstream,
    bind,
    consume,
    declare_exchange,
    downstream_of,
    until_routed,
)
from tests.client.test_faults import server

LINKS = int(os.environ.get("LEVERET_TEST_LINKS", "60"))
PATIENCE_S = 60.0 + LINKS / 4
KB_A_LINK = 160
"""Memory that the process may take for each link."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("here")).start()
    yield pair
    pair.close()


@pytest.fixture
async def down(pair: Pair) -> AsyncIterator[Downstream]:
    async with downstream_of(pair) as found:
        yield found


def resident(process: Appliance) -> int:
    """kB."""
    assert process.process is not None
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)


async def exchanges(down: Downstream, count: int) -> list[str]:
    names = [f"{down.name}-{number:04d}" for number in range(count)]
    for name in names:
        await declare_exchange(down.here, name, "fanout")
    return names


async def federate(down: Downstream) -> None:
    await down.control.call(
        "policy.put",
        vhost="/",
        name=down.name,
        pattern=f"^{down.name}-",
        definition={"federation-upstream": down.name},
        apply_to="exchanges",
        priority=1,
    )


async def links(down: Downstream) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = await down.control.call("federation.list", vhost="/")
    return [row for row in rows if row["upstream"] == down.name]


def samples(pair: Pair, path: str, start: str) -> dict[str, float]:
    text = httpx.get(f"http://127.0.0.1:{pair.broker.metrics_port}{path}", timeout=60).text
    lines = [line for line in text.splitlines() if line.startswith(start)]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


async def test_many_links_run_in_little_memory_and_end(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    first = (await exchanges(down, 1))[0]
    await down.upstream(far.amqp_url)
    await federate(down)

    def run(count: int) -> Any:
        async def do() -> bool:
            found = samples(down.pair, "/metrics", "rabbitmq_federation_links{")
            return found['rabbitmq_federation_links{status="running"}'] == count

        return do

    await until(run(1))
    before = resident(down.pair.bridges)
    names = await exchanges(down, LINKS)
    await until(run(LINKS), lambda: down.pair.bridges.log()[-3000:], PATIENCE_S)
    grown = resident(down.pair.bridges) - before
    assert grown < 8_000 + KB_A_LINK * LINKS, f"{grown} kB for {LINKS} links"
    await bind(down.here, down.name, names[-1], "")
    await until_routed(there, names[-1], "", b"x")
    found: list[Message] = []
    await consume(down.here, down.name, found)

    async def came() -> bool:
        rows = await links(down)
        return bool(found) and any(row["message_count"] for row in rows)

    await until(came)
    states = samples(down.pair, "/metrics", "rabbitmq_federation_links{")
    assert states['rabbitmq_federation_links{status="running"}'] == LINKS
    moved = samples(down.pair, "/metrics/per-object", "rabbitmq_federation_link_messages_moved")
    assert len(moved) == LINKS
    (busy,) = [label for label, value in moved.items() if value]
    assert f'exchange="{names[-1]}"' in busy
    total = samples(down.pair, "/metrics", "rabbitmq_federation_link_messages_moved_total")
    assert list(total.values()) == [sum(moved.values())]
    await down.control.call("policy.delete", vhost="/", name=down.name)
    above = BrokerClient(far.control_socket)

    async def are_gone() -> bool:
        rows = await above.call("list", noun="queues", vhost="/")
        return not any(first[:-4] in row["name"] for row in rows["items"])

    await until(are_gone, patience_s=PATIENCE_S)
    await above.close()
    assert await links(down) == []
    for name in names:
        async with down.here.channel() as channel:
            await channel.call("exchange.delete", exchange=name)


async def test_links_to_a_peer_that_says_nothing_come_some_at_once_and_hold_up_no_others(
    down: Downstream, far: Appliance, there: Connection
) -> None:
    at_once = most = 0
    at_most = Config().bridges_connecting_max

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        try:
            while await reader.read(4096):
                pass
        finally:
            at_once -= 1

    names = await exchanges(down, 3 * at_most)
    async with server(silent) as endpoint:
        uri = f"amqp://guest:guest@127.0.0.1:{endpoint.port}/?connection_timeout=60000"
        await down.upstream(uri)
        await federate(down)

        async def full() -> bool:
            return at_once == at_most

        await until(full)
        async with downstream_of(down.pair) as other:
            await declare_exchange(other.here, other.name)
            await bind(other.here, other.name, other.name, "k")
            await other.upstream(far.amqp_url)
            await other.policy()
            await other.until_running()
            await until_routed(there, other.name, "k", b"x")
        # Asked before they are ended: the peer sees a new connection before the end of an old one.
        assert most == at_most
        # Their definition is taken back while they wait, and that is not waited for either.
        await down.control.call("policy.delete", vhost="/", name=down.name)

        async def none() -> bool:
            return at_once == 0

        await until(none)
    for name in names:
        async with down.here.channel() as channel:
            await channel.call("exchange.delete", exchange=name)
