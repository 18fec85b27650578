"""The figures of shared bodies where people and programs read them: control socket and metrics.
(The HTTP API passes on what the control socket says.)"""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from management.broker_client import BrokerClient
from tests.amqp.raw import Client


async def nodes(broker: Any) -> dict[str, Any]:
    control = BrokerClient(broker.control_socket)
    (node,) = await control.call("nodes")
    await control.close()
    return dict(node)


def metrics(broker: Any) -> str:
    url = f"http://127.0.0.1:{broker.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


async def test_the_node_and_the_metrics_tell_of_shared_bodies(make_broker: Any) -> None:
    broker = make_broker(message_store_index="leveldb")
    assert (await nodes(broker))["msg_store"]["stores"] == 0
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        client.call(1, "exchange.declare", exchange="f", type="fanout", durable=True)
        for name in "ab":
            client.call(1, "queue.declare", queue=name, durable=True)
            client.call(1, "queue.bind", queue=name, exchange="f")
        for number in range(1, 4):
            client.publish(1, "f", "", b"x" * 5000, delivery_mode=2)
            client.expect_confirms(1, number, first=number)
        client.get(1, "a")
        client.close()
    node = await nodes(broker)
    bodies = node["msg_store"]
    assert node["msg_store_write_count"] == bodies["written"] == 3
    assert node["msg_store_read_count"] == bodies["in_flight_misses"] == 1
    assert node["queue_index_write_count"] >= 2
    assert node["queue_index_read_count"] >= 0
    assert (bodies["stores"], bodies["files"], bodies["references"]) == (1, 1, 6)
    assert bodies["embed_below"] == 4096
    assert bodies["live_bytes"] == 3 * (24 + 5000)
    assert bodies["index"]["backend"] == "leveldb"
    assert bodies["index"]["bloom"]["bits"] > 9_000_000
    text = await asyncio.to_thread(metrics, broker)
    found = {
        sample.name.removeprefix("rabbitmq_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["msg_store_write_total"] == 3
    assert found["msg_store_read_total"] == 1
    assert found["queue_index_write_ops_total"] >= 2
    assert found["msg_store_references"] == 6
    assert found["msg_store_live_bytes"] == 3 * (24 + 5000)
    assert found["msg_store_index_entries"] == 3
    assert found["msg_store_bloom_rotating"] == 0
    assert found["msg_store_gc_runs_total"] == 0
