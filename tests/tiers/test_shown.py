"""What the broker shows of tiers, and who the object store belongs to: by the control socket,
with a tiers process that comes and goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.amqp import streams
from tests.control.test_real_broker import control, until
from tests.ctl.conftest import Ctl, run
from tests.tiers.processes import Processes

__all__ = ["run"]

BODIES = [bytes([number]) * 1000 for number in range(24)]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path).start()
    yield made
    made.close()


@pytest.fixture
async def client(processes: Processes) -> AsyncIterator[BrokerClient]:
    async with control(processes.broker) as client:
        yield client


async def state(client: BrokerClient, wanted: str) -> Any:
    """The figures, once the store is in this state."""
    return await until(lambda: client.call("tiers"), lambda found: found["state"] == wanted)


async def put_segments(processes: Processes, client: BrokerClient) -> str:
    """A stream of which all segments but the last are in the store only."""
    with processes.client() as amqp:
        stream = processes.tiered(amqp)
        streams.fill(amqp, stream, *BODIES)
    await until(
        lambda: client.call("item", noun="queues", vhost="/", name=stream),
        lambda row: row["stream"]["tier"]["remote_segments"] == row["segments"] - 1 > 0,
    )
    return stream


async def test_it_shows_where_segments_are_and_what_the_store_cost(
    processes: Processes, client: BrokerClient
) -> None:
    assert (await client.call("tiers"))["state"] == "unused"
    stream = await put_segments(processes, client)
    found = await state(client, "fine")
    row = await client.call("item", noun="queues", vhost="/", name=stream)
    tier = row["stream"]["tier"]
    assert tier["local_segments"] == 1 and tier["on"]
    assert tier["remote_bytes"] == tier["tiered_bytes"] > 0
    assert found["objects"] == found["uploaded_segments"] == tier["tiered_segments"]
    assert found["objects"] == len(processes.objects())
    assert found["uploaded_bytes"] == sum(path.stat().st_size for path in processes.objects())
    assert found["owner"] == found["appliance"] and found["problem"] == ""
    assert found["pending_segments"] == 0 and found["store_requests"] >= 2 * found["objects"]
    with processes.client() as amqp:
        got = streams.read(amqp, stream, len(BODIES), x_stream_offset="first")
    assert got == list(enumerate(BODIES))
    found = await client.call("tiers")
    assert found["fetched_blocks"] == tier["remote_segments"]
    assert found["cache_bytes"] == tier["remote_bytes"] and found["waiting_readers"] == 0
    text = (await client.call("metrics"))["body"].decode()
    assert "\nrabbitmq_tiers_store_up 1\n" in text
    assert f"\nrabbitmq_tiers_objects {found['objects']}\n" in text
    assert f"\nrabbitmq_tiers_fetched_blocks_total {found['fetched_blocks']}\n" in text


async def test_a_store_that_is_away_is_a_problem_until_it_is_back(
    processes: Processes, client: BrokerClient
) -> None:
    await put_segments(processes, client)
    processes.tiers.kill()
    found = await state(client, "away")
    assert found["problem"] == "the tiers process is not running"

    async def problems() -> list[str]:
        found = await client.call("problems")
        return [item["text"] for item in found["items"] if "object store" in item["text"]]

    (text,) = await until(problems, len)
    assert "the tiers process is not running" in text
    with pytest.raises(BrokerError, match="not connected") as caught:
        await client.call("tiers.adopt")
    assert (caught.value.status, caught.value.error) == (503, "unavailable")
    processes.tiers.start(wait=False)
    await state(client, "fine")
    await until(problems, lambda found: not found)


async def test_the_store_of_another_appliance_is_left_alone_until_it_is_adopted(
    processes: Processes, client: BrokerClient, run: Ctl
) -> None:
    processes.tiers.kill()
    owner = processes.store / "tiers/owner"
    owner.parent.mkdir(parents=True)
    owner.write_text(json.dumps({"appliance": "f" * 32, "product": "Leveret"}))
    with processes.client() as amqp:
        stream = processes.tiered(amqp)
        streams.fill(amqp, stream, *BODIES)
    processes.tiers.start(wait=False)
    found = await state(client, "foreign")
    assert found["owner"] == "f" * 32 and "adopt_tiers" in found["problem"]
    assert found["pending_segments"] > 0 and processes.objects() == []
    data = ("--data-dir", str(processes.broker.data_dir))
    said = await asyncio.to_thread(run, *data, "tiers")
    assert said.status == 0 and "foreign" in said.out and "f" * 32 in said.out
    said = await asyncio.to_thread(run, *data, "adopt_tiers")
    assert said.status == 0, said
    found = await until(
        lambda: client.call("tiers"), lambda found: found["objects"] and not found["pending_bytes"]
    )
    assert found["state"] == "fine" and found["owner"] == found["appliance"] != "f" * 32
    assert json.loads(owner.read_text())["appliance"] == found["appliance"]
    said = await asyncio.to_thread(run, *data, "tiers", "--format", "json")
    assert said.data["objects"] == found["objects"]
