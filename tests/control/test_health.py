"""Each health check when it fails, with RabbitMQ's words.

The words were taken from RabbitMQ 3.10.8 by making each check fail, those of the newer checks
from 4.x. `tests/api/test_health.py` has the statuses over HTTP.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from broker.schema.control_schema import Health
from broker.server.alarms import Reading
from broker.server.app import Broker
from broker.server.control.health_verbs import CHECKS
from management.broker_client import BrokerClient, BrokerError
from tests import inside
from tests.inside import configure, put_user

OK = {"status": "ok"}
SINGLE = {"status": "ok", "reason": "single node cluster"}


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[Broker]:
    """It listens for AMQP and for AMQP over WebSocket."""
    ports = {"bind": ("127.0.0.1",), "amqp_port": 0, "ws_port": 0}
    async with inside.running(directory, **ports) as broker:
        yield broker


def ports_of(broker: Broker) -> list[int]:
    return sorted(row["port"] for row in broker.listeners)


def test_every_check_of_the_schema_is_carried_out() -> None:
    assert set(get_args(get_type_hints(Health)["check"])) == set(CHECKS)


@pytest.mark.parametrize("check", sorted(set(CHECKS) - {"port-listener", "protocol-listener"}))
async def test_a_broker_that_is_well_passes(client: BrokerClient, check: str) -> None:
    argument = {"certificate-expiration": "1 months", "aliveness": "/"}.get(check)
    answer = await client.call("health", check=check, argument=argument)
    assert answer["status"] == "ok"
    if "critical" in check:
        assert answer == SINGLE


async def fails(client: BrokerClient, check: str, argument: str | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = await client.call("health", check=check, argument=argument)
    assert answer.pop("status") == "failed"
    return answer


async def test_alarms_of_memory_and_disk(broker: Broker, client: BrokerClient) -> None:
    broker.watch.judge(Reading(0, 1 << 40, 1 << 60))
    assert broker.alarms == {"disk", "memory"}
    rows = [
        {"node": broker.node_name, "resource": "disk space"},
        {"node": broker.node_name, "resource": "memory"},
    ]
    assert await fails(client, "alarms") == {
        "reason": "There are alarms in effect in the cluster",
        "alarms": rows,
    }
    assert await fails(client, "local-alarms") == {
        "reason": "There are alarms in effect on the node",
        "alarms": rows,
    }
    name = broker.node_name
    assert await fails(client, "node", name) == {
        "reason": f"resource alarm(s) in effect:[{{resource_limit,disk space,{name}}},"
        f"{{resource_limit,memory,{name}}}]"
    }


async def test_a_disk_that_does_not_answer_is_an_alarm(
    broker: Broker, client: BrokerClient
) -> None:
    configure(broker, disk_stall_after=1.0)
    broker.stall.judge(5.0)
    for check in ("alarms", "local-alarms"):
        (row,) = (await fails(client, check))["alarms"]
        assert row["resource"] == "stalled disk"


async def test_another_node_is_not_found(client: BrokerClient) -> None:
    with pytest.raises(BrokerError) as refused:
        await client.call("health", check="node", argument="rabbit@elsewhere")
    assert refused.value.status == 404


async def test_vhosts_that_lost_something(broker: Broker, client: BrokerClient) -> None:
    broker.vhosts["/"].begun_anew = 1
    assert await fails(client, "virtual-hosts") == {
        "reason": "Some virtual hosts are down",
        "virtual-hosts": ["/"],
    }


async def test_names_of_damaged_vhosts_are_for_who_may_see_them(
    broker: Broker, client: BrokerClient
) -> None:
    broker.definitions.create_vhost("secret").begun_anew = 1
    put_user(broker, "tenant", "management")
    put_user(broker, "watcher", "monitoring")
    answer = await client.call("health", as_user="tenant", check="virtual-hosts")
    assert answer == {
        "status": "failed",
        "reason": "Some virtual hosts are down",
        "virtual-hosts": [],
    }
    answer = await client.call("health", as_user="watcher", check="virtual-hosts")
    assert answer["virtual-hosts"] == ["secret"]


async def test_a_port_where_nothing_listens(broker: Broker, client: BrokerClient) -> None:
    assert await fails(client, "port-listener", "1") == {
        "reason": "No active listener",
        "missing": 1,
        "ports": ports_of(broker),
    }
    assert (await fails(client, "port-listener", "99999999"))["missing"] == 99999999
    with pytest.raises(BrokerError, match="Invalid port") as refused:
        await client.call("health", check="port-listener", argument="amqp")
    assert refused.value.status == 400


async def test_listeners_of_the_web_process_count_while_it_runs(
    broker: Broker, client: BrokerClient
) -> None:
    note = broker.config.run_dir / "web.json"
    facts = {"http": ["127.0.0.1", 15672], "pid": {"web": os.getpid()}}
    note.write_bytes(msgspec.json.encode(facts))
    answer = await client.call("health", check="port-listener", argument="15672")
    assert answer == {"status": "ok", "port": 15672}
    answer = await client.call("health", check="protocol-listener", argument="management")
    assert answer == {"status": "ok", "protocol": "http"}
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    note.write_bytes(msgspec.json.encode({**facts, "pid": {"web": ended.pid}}))
    assert (await fails(client, "port-listener", "15672"))["ports"] == ports_of(broker)


@pytest.mark.parametrize(
    ("asked", "missing"), [("amqps", "amqp/ssl"), ("MQTT", "mqtt"), ("http", "http")]
)
async def test_a_protocol_that_is_not_spoken(
    client: BrokerClient, asked: str, missing: str
) -> None:
    assert await fails(client, "protocol-listener", asked) == {
        "reason": "No active listener",
        "missing": missing,
        "protocols": ["amqp", "http/web-amqp"],
    }


@pytest.mark.parametrize("asked", ["amqp", "AMQP", "amqp091", "amqp0-9-1", "amqp0.9.1"])
async def test_amqp_has_several_names(client: BrokerClient, asked: str) -> None:
    answer = await client.call("health", check="protocol-listener", argument=asked)
    assert answer == {"status": "ok", "protocol": "amqp"}


async def test_a_broker_that_stops(broker: Broker, client: BrokerClient) -> None:
    broker.stopping = True
    assert await fails(client, "is-in-service") == {
        "reason": "this rabbit node is not currently available to serve"
    }
    assert await fails(client, "ready-to-serve-clients") == {
        "reason": "the rabbit node is not currently available to serve"
    }


async def test_a_broker_without_a_listener_for_amqp(broker: Broker, client: BrokerClient) -> None:
    broker.listeners[:] = [row for row in broker.listeners if row["protocol"] == "ws"]
    assert await fails(client, "ready-to-serve-clients") == {
        "reason": "no active listeners for AMQP/AMQPS"
    }


async def test_as_many_connections_as_there_may_be(broker: Broker, client: BrokerClient) -> None:
    broker.admission.configure(10)
    broker.admission.sockets = 9
    assert await client.call("health", check="below-node-connection-limit") == {
        "status": "ok",
        "limit": 10,
        "connections": 9,
    }
    broker.admission.sockets = 10
    reason = "node connection limit is reached"
    assert await fails(client, "below-node-connection-limit") == {
        "reason": reason,
        "limit": 10,
        "connections": 10,
    }
    assert await fails(client, "ready-to-serve-clients") == {"reason": reason, "connections": 10}


async def test_a_broker_without_a_vhost(broker: Broker, client: BrokerClient) -> None:
    await client.call("vhost.delete", name="/")
    assert await fails(client, "metadata-store-initialized-with-data") == {
        "reason": "Metadata store has not yet been initialized: it reports to have no virtual hosts"
    }


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("1 x", "Time unit not recognised. Supported units: days, weeks, months, years."),
        ("1 day", "Time unit not recognised. Supported units: days, weeks, months, years."),
        ("x days", "Invalid expiration value."),
        ("1.5 days", "Invalid expiration value."),
        ("9" * 30 + " years", "Invalid expiration value."),
    ],
)
async def test_a_time_that_is_none(client: BrokerClient, argument: str, reason: str) -> None:
    with pytest.raises(BrokerError) as refused:
        await client.call("health", check="certificate-expiration", argument=argument)
    assert (refused.value.status, refused.value.reason) == (400, reason)


async def test_a_message_that_does_not_come_back(broker: Broker, client: BrokerClient) -> None:
    broker.vhosts["/"].declare_queue("aliveness-test", arguments={"x-max-length": 0})
    assert await fails(client, "aliveness", "/") == {
        "reason": "no message came back from queue 'aliveness-test' in vhost '/'"
    }


async def test_aliveness_leaves_no_message_behind(broker: Broker, client: BrokerClient) -> None:
    for _ in range(2):
        assert await client.call("health", check="aliveness", argument="/") == OK
    queue = broker.vhosts["/"].queues["aliveness-test"]
    assert (queue.messages_ready, queue.messages_unacknowledged) == (0, 0)


async def test_the_aliveness_test_leaves_another_connections_queue_alone(
    broker: Broker, client: BrokerClient
) -> None:
    put_user(broker, "watch", "management")
    peer = await inside.connect(broker, "watch")
    peer.call(1, "queue.declare", queue="aliveness-test", exclusive=True)
    await peer.publish("aliveness-test", body=b"secret")
    for user in ("watch", "guest", None):
        found = await client.call("health", as_user=user, check="aliveness", argument="/")
        assert found["status"] == "failed"
        assert "cannot obtain exclusive access to locked queue" in found["reason"]
    queue = broker.vhosts["/"].queues["aliveness-test"]
    assert queue.messages == 1
    await peer.leave()
    assert await client.call("health", check="aliveness", argument="/") == OK
