"""Duplicates over HTTP: dropped and counted."""

import uuid
from typing import Any

import httpx

from tests.api.conftest import VHOST, path

ARGUMENTS = {"x-message-deduplication": True, "x-cache-size": 7}


def publish(api: httpx.Client, exchange: str, key: str, id: Any) -> dict[str, Any]:
    answer = api.post(
        path("exchanges", VHOST, exchange, "publish"),
        json={
            "routing_key": key,
            "payload": "x",
            "payload_encoding": "string",
            "properties": {"headers": {"x-deduplication-header": id}},
        },
    )
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def test_it_counts_the_duplicates_of_a_queue_and_of_an_exchange(api: httpx.Client) -> None:
    name = f"duplicates-{uuid.uuid4().hex[:8]}"
    for noun, more in (("queues", {}), ("exchanges", {"type": "fanout"})):
        made = api.put(path(noun, VHOST, name), json={"arguments": ARGUMENTS, **more})
        assert made.status_code == 201, made.text
    other = f"{name}-behind"
    api.put(path("queues", VHOST, other), json={}).raise_for_status()
    api.post(path("bindings", VHOST, "e", name, "q", other), json={}).raise_for_status()
    for id in ("a", "a", "b", "a"):
        assert publish(api, "amq.default", name, id) == {"routed": True}
        assert publish(api, name, "", id) == {"routed": True}
    for noun in ("queues", "exchanges"):
        row = api.get(path(noun, VHOST, name)).json()
        assert row["message_stats"]["dedup"] == row["dedup_count"] == 2
        assert (row["dedup_remembered"], row["dedup_remembered_max"]) == (2, 7)
    assert "dedup_count" not in api.get(path("queues", VHOST, other)).json()
    for queue in (name, other):
        answer = api.post(
            path("queues", VHOST, queue, "get"),
            json={"count": 10, "ackmode": "ack_requeue_false", "encoding": "auto"},
        )
        assert len(answer.json()) == 2
        api.delete(path("queues", VHOST, queue))
    api.delete(path("exchanges", VHOST, name))
