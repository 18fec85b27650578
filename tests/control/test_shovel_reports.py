"""What the broker keeps of the reports of shovels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.server.app import Broker
from broker.server.metrics.bridges import bridge_metrics
from management.broker_client import BrokerClient

VALUE = {
    "src-protocol": "amqp091",
    "src-uri": "amqp://",
    "src-queue": "from",
    "dest-protocol": "amqp091",
    "dest-uri": "amqp://",
    "dest-queue": "to",
    "src-delete-after": 5,
}


@pytest.fixture
async def shovels(broker: Broker, client: BrokerClient) -> list[str]:
    """Two shovels."""
    names = ["first", "second"]
    for name in names:
        await client.call(
            "parameter.put", component="shovel", vhost="/", name=name, value=dict(VALUE)
        )
    return names


def generation(broker: Broker, name: str) -> int:
    shovel = broker.shovels.get("/", name)
    assert shovel is not None
    return int(shovel.generation)


async def report(broker: Broker, client: BrokerClient, name: str, moved: int, **more: Any) -> None:
    row = {
        "vhost": "/",
        "name": name,
        "generation": generation(broker, name),
        "state": "running",
        "reason": "",
        "since": 1,
        "counts": {"moved": moved},
        **more,
    }
    await client.call("bridges.report", shovels=[row])


def moved(broker: Broker) -> int:
    prefix = "rabbitmq_shovel_messages_moved_total "
    (line,) = (each for each in bridge_metrics(broker, True) if each.startswith(prefix))
    return int(float(line.split(prefix)[1]))


def stored(broker: Broker) -> Iterator[str]:
    """Names of the shovels in the file that the next start reads."""
    document = json.loads((broker.config.data_dir / "parameters.json").read_bytes())
    return (row["name"] for row in document["parameters"] if row["component"] == "shovel")


async def test_a_shovel_that_has_moved_all_is_deleted_on_disk_when_its_report_is_answered(
    broker: Broker, client: BrokerClient, shovels: list[str]
) -> None:
    assert sorted(stored(broker)) == shovels
    await report(broker, client, "first", 5, is_over=True)
    assert list(stored(broker)) == ["second"]


async def test_sums_over_all_shovels_do_not_go_down_when_one_is_deleted(
    broker: Broker, client: BrokerClient, shovels: list[str]
) -> None:
    await report(broker, client, "first", 1_000_000)
    await report(broker, client, "second", 5)
    assert moved(broker) == 1_000_005
    await client.call("parameter.delete", component="shovel", vhost="/", name="first")
    assert moved(broker) == 1_000_005
    await report(broker, client, "second", 5, is_over=True)
    assert moved(broker) == 1_000_010
