"""The firehose: what is published and delivered comes to amq.rabbitmq.trace, or to queues."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pika
import pytest

from tests.api.conftest import path
from tests.appliance import Appliance

VHOST = "api/tracing"
FIRE = path("queues", VHOST, "fire")


@pytest.fixture(autouse=True)
def vhost(api: httpx.Client) -> Iterator[None]:
    where = path("vhosts", VHOST)
    api.put(where, json={}).raise_for_status()
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.put(path("permissions", VHOST, "guest"), json=everything).raise_for_status()
    for name in ("fire", "work"):
        api.put(path("queues", VHOST, name), json={}).raise_for_status()
    yield
    api.delete(where).raise_for_status()


@pytest.fixture
def channel(shared_leveret: Appliance) -> Iterator[Any]:
    parameters = pika.ConnectionParameters(
        shared_leveret.host,
        shared_leveret.amqp_port,
        VHOST,
        pika.PlainCredentials("guest", "guest"),
    )
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    connection.close()


def bind(api: httpx.Client, pattern: str = "#") -> None:
    between = path("bindings", VHOST, "e", "amq.rabbitmq.trace", "q", "fire")
    api.post(between, json={"routing_key": pattern}).raise_for_status()


def switch(api: httpx.Client, on: bool) -> None:
    api.put(path("vhosts", VHOST), json={"tracing": on}).raise_for_status()
    assert api.get(path("vhosts", VHOST)).json()["tracing"] is on


def traced(api: httpx.Client, count: int, queue: str = FIRE) -> list[dict[str, Any]]:
    """The next messages of a queue, when there are so many."""
    while api.get(queue, params={"columns": "messages"}).json()["messages"] < count:
        pass
    wanted = {"count": count + 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    found: list[dict[str, Any]] = api.post(queue + "/get", json=wanted).json()
    assert len(found) == count
    return found


def publish_over_http(api: httpx.Client, **more: Any) -> None:
    message = {
        "properties": {"message_id": "m1", "headers": {"a": 1}},
        "routing_key": "work",
        "payload": "hello",
        "payload_encoding": "string",
        **more,
    }
    where = path("exchanges", VHOST, "amq.default", "publish")
    api.post(where, json=message).raise_for_status()


def test_every_vhost_has_the_exchange(api: httpx.Client) -> None:
    row = api.get(path("exchanges", VHOST, "amq.rabbitmq.trace")).json()
    assert (row["type"], row["durable"], row["internal"]) == ("topic", True, True)


def test_it_is_off_until_it_is_turned_on_and_off_again(api: httpx.Client, channel: Any) -> None:
    bind(api)
    channel.confirm_delivery()
    channel.basic_publish("", "work", b"before")
    switch(api, True)
    channel.basic_publish("", "work", b"traced")
    assert [one["payload"] for one in traced(api, 1)] == ["traced"]
    # The look into the queue came to the firehose as well, but not that of the firehose itself.
    switch(api, False)
    channel.basic_publish("", "work", b"after")
    assert api.get(FIRE).json()["messages"] == 0


def test_it_says_what_rabbitmq_says(api: httpx.Client, channel: Any) -> None:
    """Keys and headers as RabbitMQ 3.10.8 gave them, beside the connection's name."""
    bind(api)
    channel.confirm_delivery()
    switch(api, True)
    properties = pika.BasicProperties(message_id="m1", headers={"a": 1})
    channel.basic_publish("", "work", b"hello", properties)
    method, _, _ = channel.basic_get("work", auto_ack=True)
    assert method is not None
    published, delivered = traced(api, 2)
    assert (published["exchange"], published["routing_key"]) == ("amq.rabbitmq.trace", "publish.")
    assert published["payload"] == "hello"
    headers = published["properties"]["headers"]
    connection = headers.pop("connection")
    assert "->" in connection
    node = headers.pop("node")
    assert node == api.get("/api/overview").json()["node"]
    assert headers == {
        "exchange_name": "",
        "routing_keys": ["work"],
        "properties": {"message_id": "m1", "headers": {"a": 1}},
        "vhost": VHOST,
        "channel": 1,
        "user": "guest",
        "routed_queues": ["work"],
    }
    assert delivered["routing_key"] == "deliver.work"
    headers = delivered["properties"]["headers"]
    assert headers["redelivered"] == 0
    assert "routed_queues" not in headers
    assert (headers["connection"], delivered["payload"]) == (connection, "hello")


def test_a_consumers_deliveries_and_unroutable_messages_are_traced(
    api: httpx.Client, channel: Any
) -> None:
    bind(api)
    switch(api, True)
    channel.basic_publish("amq.fanout", "nowhere", bytes(range(256)))
    channel.basic_publish("", "work", b"x")
    for _, _, _ in channel.consume("work", auto_ack=True, inactivity_timeout=60):
        break
    lost, _, delivered = traced(api, 3)
    assert lost["routing_key"] == "publish.amq.fanout"
    assert lost["properties"]["headers"]["routed_queues"] == []
    assert base64.b64decode(lost["payload"]) == bytes(range(256))
    assert delivered["routing_key"] == "deliver.work"


def test_what_the_api_publishes_and_gets_is_traced(api: httpx.Client) -> None:
    bind(api)
    switch(api, True)
    publish_over_http(api)
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    api.post(path("queues", VHOST, "work", "get"), json=wanted).raise_for_status()
    published, delivered = traced(api, 2)
    assert published["properties"]["headers"]["connection"] == "HTTP API"
    assert published["properties"]["headers"]["user"] == "api-administrator"
    assert delivered["routing_key"] == "deliver.work"


def test_a_consumer_of_the_firehose_does_not_trace_itself(api: httpx.Client, channel: Any) -> None:
    bind(api)
    switch(api, True)
    channel.basic_publish("", "work", b"once")
    bodies = []
    for _, _, body in channel.consume("fire", auto_ack=True):
        bodies.append(body)
        if body == b"again":
            break
        # A trace of the delivery would come before that of what is published after it.
        channel.basic_publish("", "work", b"again")
    assert bodies == [b"once", b"again"]


def test_long_bodies_are_cut(api: httpx.Client, channel: Any) -> None:
    bind(api)
    switch(api, True)
    channel.basic_publish("", "work", b"x" * 100_000)
    (one,) = traced(api, 1)
    assert one["payload_bytes"] == 64 * 1024


# -- traces ------------------------------------------------------------------------------------


def test_a_trace_leads_to_a_queue_of_its_own(api: httpx.Client) -> None:
    where = path("traces", VHOST, "t")
    own = path("queues", VHOST, "trace.t")
    assert api.put(where, json={"pattern": "publish.#"}).status_code == 201
    publish_over_http(api)
    (one,) = traced(api, 1, own)
    assert one["routing_key"] == "publish."
    row = {
        "vhost": VHOST,
        "name": "t",
        "format": "queue",
        "pattern": "publish.#",
        "queue": {"vhost": VHOST, "name": "trace.t"},
    }
    assert api.get(where).json() == row
    assert row in api.get("/api/traces").json()
    assert api.get(path("traces", VHOST)).json() == [row]
    assert api.get(path("vhosts", VHOST)).json()["tracing"] is True
    assert api.get(own).json()["arguments"]["x-max-length"] == 10_000
    assert api.put(where, json={"pattern": "deliver.#"}).status_code == 204
    assert api.delete(where).status_code == 204
    assert api.get(own).status_code == 404
    assert api.get(path("vhosts", VHOST)).json()["tracing"] is False
    assert api.delete(where).status_code == 404


def test_a_trace_leads_to_a_queue_that_is_there(api: httpx.Client) -> None:
    where = path("traces", VHOST, "given")
    assert api.put(where, json={"pattern": "#", "queue": "missing"}).status_code == 404
    assert api.put(where, json={"pattern": "#", "queue": "fire"}).status_code == 201
    publish_over_http(api)
    traced(api, 1)
    assert api.delete(where).status_code == 204
    assert api.get(FIRE).status_code == 200


@pytest.mark.parametrize("body", [{}, {"pattern": 5}, {"pattern": "x" * 256}])
def test_a_trace_without_a_pattern_is_refused(api: httpx.Client, body: dict[str, Any]) -> None:
    assert api.put(path("traces", VHOST, "bad"), json=body).status_code == 400
    assert api.get(path("vhosts", VHOST)).json()["tracing"] is False


def test_a_trace_whose_queue_was_deleted_ends(api: httpx.Client) -> None:
    where = path("traces", VHOST, "gone")
    api.put(where, json={"pattern": "#"}).raise_for_status()
    api.delete(path("queues", VHOST, "trace.gone")).raise_for_status()
    assert api.delete(where).status_code == 204


def test_a_change_that_is_refused_leaves_the_trace_as_it_was(api: httpx.Client) -> None:
    where = path("traces", VHOST, "kept")
    api.put(where, json={"pattern": "publish.#", "queue": "fire"}).raise_for_status()
    before = api.get(where).json()
    assert api.put(where, json={"pattern": "#", "queue": "missing"}).status_code == 404
    api.put(path("queues", VHOST, "trace.kept"), json={"durable": True}).raise_for_status()
    assert api.put(where, json={"pattern": "#"}).status_code == 400
    assert api.get(where).json() == before
    publish_over_http(api)
    traced(api, 1)
    assert api.delete(where).status_code == 204
    assert api.get(path("queues", VHOST, "trace.kept")).status_code == 200


def test_a_trace_does_not_take_over_a_queue_with_its_name(api: httpx.Client) -> None:
    own = path("queues", VHOST, "trace.mine")
    arguments = {"x-max-length": 10_000, "x-queue-type": "classic"}
    api.put(own, json={"durable": False, "arguments": arguments}).raise_for_status()
    where = path("traces", VHOST, "mine")
    assert api.put(where, json={"pattern": "#"}).status_code == 400
    assert api.get(where).status_code == 404
    assert api.get(own).status_code == 200
