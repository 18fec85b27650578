"""The history of messages over HTTP: found by a key, by those who may read it."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import PASSWORD, VHOST, path

WAIT_S = 60.0


@pytest.fixture
def vhost(api: httpx.Client) -> Iterator[str]:
    """A vhost with a queue `orders` whose messages are recorded whole."""
    name = f"history-{uuid.uuid4().hex[:8]}"
    api.put(path("vhosts", name), json={}).raise_for_status()
    api.put(path("queues", name, "orders"), json={"durable": True}).raise_for_status()
    definition = {"history": "full", "history-keys": "header:order_id"}
    policy = {"pattern": "^orders$", "definition": definition}
    api.put(path("policies", name, "keep"), json=policy).raise_for_status()
    yield name
    api.delete(path("vhosts", name)).raise_for_status()


def publish(api: httpx.Client, vhost: str, order: int, payload: str) -> None:
    body = {
        "routing_key": "orders",
        "payload": payload,
        "payload_encoding": "string",
        "properties": {"delivery_mode": 2, "headers": {"order_id": order}},
    }
    answer = api.post(path("exchanges", vhost, "amq.default", "publish"), json=body)
    assert answer.json() == {"routed": True}


def test_a_message_is_found_with_what_came_of_it(api: httpx.Client, vhost: str) -> None:
    for order in (4710, 4711, 4712):
        publish(api, vhost, order, f"order {order}")
    search = path("history", vhost, "search")
    found = api.get(search, params={"key": "order_id", "value": "4711"}).json()
    (record,) = found["records"]
    assert found["complete"] is True and "messages" not in found
    assert (record["outcome"], record["queues"]) == ("routed", ["orders"])
    assert record["connection"] == "HTTP API" and record["routing_key"] == "orders"
    assert (record["payload"], record["payload_encoding"]) == ("order 4711", "string")
    assert record["properties"] == {"delivery_mode": 2, "headers": {"order_id": 4711}}
    found = api.get(search, params={"value": "4711", "to": "yesterday"}).json()
    assert found["records"] == []
    answer = api.get(search, params={"value": "4711", "from": "noon"})
    assert answer.status_code == 400 and "'noon' is no time" in answer.text
    # A vhost without a history says so.
    other = api.get(path("history", VHOST, "search"), params={"value": "4711"})
    assert other.status_code == 404 and "no queue 'amq.history'" in other.text


def test_it_takes_more_than_a_pattern_for_all_names(
    api: httpx.Client, vhost: str, api_url: str
) -> None:
    publish(api, vhost, 1, "x")
    user = f"{vhost}-user"
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    search = path("history", vhost, "search")
    asked: dict[str, Any] = {"params": {"value": "1"}}
    api.put(path("users", user), json={"password": PASSWORD, "tags": "management"})
    try:
        api.put(path("permissions", vhost, user), json=rights).raise_for_status()
        with httpx.Client(base_url=api_url, auth=(user, PASSWORD), timeout=30) as few:
            answer = few.get(search, **asked)
            assert answer.status_code == 401
            assert "or a pattern that names it" in answer.text
            rights["read"] = "^amq[.]history$|^amq\\.history$"
            api.put(path("permissions", vhost, user), json=rights).raise_for_status()
            until = time.monotonic() + WAIT_S
            while not (found := few.get(search, **asked)).is_success:
                assert time.monotonic() < until, found.text
            assert len(found.json()["records"]) == 1
    finally:
        api.delete(path("users", user)).raise_for_status()
