"""The metrics page, as a scraper reads it."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.server.app import Broker
from broker.server.metrics import MetricsServer, objects
from tests.amqp.raw import Client
from tests.conftest import Make
from tests.hostile.figures import unread
from tests.inside import ack, connect, publish

# What RabbitMQ's Overview dashboard (Grafana 10991) asks for.
DASHBOARD = [
    "identity_info",
    "build_info",
    "queues",
    "channels",
    "connections",
    "consumers",
    "queue_messages_ready",
    "queue_messages_unacked",
    "queues_declared_total",
    "queues_created_total",
    "queues_deleted_total",
    "channels_opened_total",
    "channels_closed_total",
    "connections_opened_total",
    "connections_closed_total",
    "process_resident_memory_bytes",
    "resident_memory_limit_bytes",
    "disk_space_available_bytes",
    "disk_space_available_limit_bytes",
    "process_open_fds",
    "process_max_fds",
    "erlang_uptime_seconds",
    "process_open_tcp_sockets",
    "process_max_tcp_sockets",
    "global_publishers",
    "global_consumers",
    "global_messages_received_total",
    "global_messages_received_confirm_total",
    "global_messages_confirmed_total",
    "global_messages_routed_total",
    "global_messages_unroutable_dropped_total",
    "global_messages_unroutable_returned_total",
    "global_messages_delivered_total",
    "global_messages_delivered_consume_auto_ack_total",
    "global_messages_delivered_consume_manual_ack_total",
    "global_messages_delivered_get_auto_ack_total",
    "global_messages_delivered_get_manual_ack_total",
    "global_messages_get_empty_total",
    "global_messages_redelivered_total",
    "global_messages_acknowledged_total",
]


@pytest.fixture
async def port(broker: Broker) -> AsyncIterator[int]:
    server = MetricsServer(broker)
    yield await server.start("127.0.0.1", 0)
    await server.close()


async def get(port: int, path: str, method: str = "GET") -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b"Transfer-Encoding: chunked" in head:
        body = b"".join(chunks(body))
    return head.decode(), body.decode()


def chunks(data: bytes) -> Iterator[bytes]:
    """What an answer in chunks holds. Raises AssertionError if its end is missing."""
    while True:
        length, _, data = data.partition(b"\r\n")
        assert length, "the answer has no end"
        size = int(length, 16)
        assert data[size : size + 2] == b"\r\n"
        if not size:
            return
        yield data[:size]
        data = data[size + 2 :]


def samples(body: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            name = sample.name.removeprefix("rabbitmq_")
            found.setdefault(name, []).append((sample.labels, sample.value))
    return found


async def test_it_has_all_that_the_dashboard_asks_for(broker: Broker, port: int) -> None:
    head, body = await get(port, "/metrics")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "text/plain; version=0.0.4" in head
    found = samples(body)
    assert [name for name in DASHBOARD if name not in found] == []
    ((labels, value),) = found["identity_info"]
    assert value == 1
    assert labels["rabbitmq_node"] == broker.node_name
    ((labels, _),) = found["global_messages_received_total"]
    assert labels == {"protocol": "amqp091"}
    assert body.count("# TYPE rabbitmq_queues gauge") == 1


@pytest.mark.parametrize("name", ["plain", 'q"\\\n{}', "é🐇", "\udcff"])
async def test_it_escapes_hostile_names(broker: Broker, port: int, name: str) -> None:
    broker.vhosts["/"].declare_queue(name)
    _, body = await get(port, "/metrics/per-object?x=1")
    labels = [labels for labels, _ in samples(body)["queue_messages"]]
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    assert {"vhost": "/", "queue": shown} in labels


async def test_it_never_counts_down_when_objects_go(broker: Broker, port: int) -> None:
    publisher, consumer = await connect(broker, "anna"), await connect(broker, "anna")
    broker.vhosts["/"].declare_queue("q")
    await consumer.consume("q", "tag")
    seen = []

    async def look() -> None:
        await broker.sampling.once()
        found = samples((await get(port, "/metrics"))[1])
        names = [name for name in found if name.endswith("_total")]
        seen.append({name: sum(value for _, value in found[name]) for name in names})

    await look()
    await publisher.publish("q", 7)
    await publisher.publish("unroutable", 3)
    await consumer.fence()
    await look()
    await publisher.publish("q", 2)
    await publisher.publish("unroutable")
    await consumer.fence()
    publisher.call(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    broker.vhosts["/"].delete_queue("q")
    await publisher.leave()
    await consumer.leave()
    assert not broker.connections
    await look()
    await look()
    for before, after in itertools.pairwise(seen):
        assert all(after[name] >= value for name, value in before.items())
    assert seen[-1]["global_messages_received_total"] == 13
    assert seen[-1]["global_messages_delivered_total"] == 9


@pytest.fixture
def many(broker: Broker) -> None:
    for number in range(2_000):
        broker.vhosts["/"].declare_queue(f"q{number}")


@pytest.mark.usefixtures("many")
async def test_sums_hold_every_queue_and_every_channel(broker: Broker, port: int) -> None:
    vhost = broker.vhosts["/"]
    for place, queue in enumerate(list(vhost.queues.values())):
        publish(vhost, queue.name, place % 4)
        ack(queue, place % 4)
    vhost.declare_queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    for place in range(450):
        client = await connect(broker, "anna")
        client.call(1, "confirm.select")
        await client.publish("full", place % 5)
    found = samples((await get(port, "/metrics"))[1])
    acked = found["global_messages_acknowledged_total"]
    assert sum(value for _, value in acked) == 500 * (1 + 2 + 3)
    assert [value for _, value in found["global_messages_nacked_total"]] == [90 * (1 + 2 + 3 + 4)]
    assert [value for _, value in found["global_publishers"]] == [90 * 4]


@pytest.mark.usefixtures("many")
async def test_a_long_page_comes_in_chunks_and_is_made_as_it_is_taken(port: int) -> None:
    head, body = await get(port, "/metrics/per-object")
    assert "Transfer-Encoding: chunked" in head
    assert "Content-Length" not in head
    assert len(samples(body)["queue_messages"]) == 2_000
    old, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics/per-object HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
    head, _, whole = (await old.read()).decode().partition("\r\n\r\n")
    writer.close()
    assert head.endswith(f"Content-Length: {len(whole)}")
    assert whole.count("\n") == body.count("\n")


@pytest.mark.usefixtures("many")
async def test_of_a_page_that_is_not_read_little_is_made(broker: Broker, port: int) -> None:
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", port))
        await loop.sock_sendall(
            slow, b"GET /metrics/per-object HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        before, queued = -1, 0
        async with asyncio.timeout(60):
            while not queued or queued != before:
                await asyncio.sleep(0.2)
                before, queued = queued, unread(port, slow.getsockname()[1])
        # The kernel counts twice what it was told: the packets' own memory is in it.
        assert queued <= 2 * broker.config.http_send_buffer


@pytest.mark.usefixtures("many")
async def test_a_page_that_fails_in_the_middle_has_no_end(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def losses(scope: Any) -> Iterator[str]:
        raise LookupError("a queue of an add-on")
        yield

    monkeypatch.setattr(objects, "losses", losses)
    with pytest.raises(AssertionError, match="no end"):
        await get(port, "/metrics/per-object")
    assert "a scrape of the metrics failed" in caplog.text


async def test_it_answers_only_what_it_has(port: int) -> None:
    assert "404" in (await get(port, "/"))[0]
    assert "405" in (await get(port, "/metrics", "POST"))[0]
    head, body = await get(port, "/metrics", "HEAD")
    assert "200" in head
    assert body == ""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /" + b"x" * 100_000)
    assert await reader.read() == b""
    writer.close()


def test_it_says_what_add_ons_count(make_broker: Make) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        dedup = {"x-message-deduplication": True, "x-cache-size": 10}
        client.call(1, "queue.declare", queue="once", arguments=dedup)
        later = {"x-delayed-type": "direct", **dedup}
        client.call(
            1, "exchange.declare", exchange="later", type="x-delayed-message", arguments=later
        )
        for _ in range(3):
            headers = {"x-deduplication-header": "the same"}
            client.publish(1, "", "once", b"m", headers=headers)
        for number in range(2):
            headers = {"x-delay": 3_600_000, "x-deduplication-header": str(number)}
            client.publish(1, "later", "k", b"12345", headers=headers)
        client.fence(1)
        url = f"http://{broker.host}:{broker.metrics_port}/metrics/per-object"
        page = httpx.get(url, timeout=60).text
    samples = {
        (sample.name, sample.labels.get("queue") or sample.labels.get("exchange")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["rabbitmq_queue_messages_dedup_total", "once"] == 2
    assert samples["rabbitmq_queue_dedup_remembered", "once"] == 1
    assert samples["rabbitmq_queue_dedup_remembered_max", "once"] == 10
    assert samples["rabbitmq_exchange_messages_delayed_total", "later"] == 2
    assert samples["rabbitmq_exchange_messages_delayed", "later"] == 2
    assert samples["rabbitmq_exchange_message_bytes_delayed", "later"] == 10
    assert samples["rabbitmq_exchange_messages_released_total", "later"] == 0
    assert samples["rabbitmq_exchange_dedup_remembered", "later"] == 2
    assert not any(where == "amq.direct" and "dedup" in name for name, where in samples)
    broker.close()
