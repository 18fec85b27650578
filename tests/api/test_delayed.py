"""Delayed messages over HTTP: looked at, searched and cancelled."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import VHOST, path

HOUR_MS = 3_600_000


@pytest.fixture
def name(api: httpx.Client) -> Iterator[str]:
    """A delayed exchange with a queue of the same name, bound."""
    name = f"later-{uuid.uuid4().hex[:8]}"
    exchange = {
        "type": "x-delayed-message",
        "durable": True,
        "arguments": {"x-delayed-type": "fanout"},
    }
    api.put(path("exchanges", VHOST, name), json=exchange).raise_for_status()
    api.put(path("queues", VHOST, name), json={"durable": True}).raise_for_status()
    api.post(path("bindings", VHOST, "e", name, "q", name), json={}).raise_for_status()
    yield name
    api.delete(path("exchanges", VHOST, name)).raise_for_status()
    api.delete(path("queues", VHOST, name)).raise_for_status()


def publish(api: httpx.Client, name: str, key: str, delay: int, payload: str = "x") -> None:
    answer = api.post(
        path("exchanges", VHOST, name, "publish"),
        json={
            "routing_key": key,
            "payload": payload,
            "payload_encoding": "string",
            "properties": {"delivery_mode": 2, "headers": {"x-delay": delay}},
        },
    )
    assert answer.json() == {"routed": True}


def look(api: httpx.Client, name: str, **query: Any) -> dict[str, Any]:
    answer = api.get(path("exchanges", VHOST, name, "delayed"), params=query)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def keys(found: dict[str, Any]) -> list[str]:
    return [item["routing_key"] for item in found["items"]]


def test_it_lists_what_waits_soonest_first_by_pages(api: httpx.Client, name: str) -> None:
    for hours in (3, 1, 2, 5, 4):
        publish(api, name, f"in.{hours}", hours * HOUR_MS, payload="x" * hours)
    found = look(api, name)
    assert keys(found) == ["in.1", "in.2", "in.3", "in.4", "in.5"]
    assert (found["searched"], found["next"]) == (5, None)
    first, second = found["items"][:2]
    assert first["properties"] == {"delivery_mode": 2, "headers": {"x-delay": -HOUR_MS}}
    assert [item["payload_bytes"] for item in found["items"]] == [1, 2, 3, 4, 5]
    assert HOUR_MS - 60_000 < second["due"] - first["due"] < HOUR_MS + 60_000
    row = api.get(path("exchanges", VHOST, name)).json()
    assert row["messages_delayed"] == row["message_stats"]["delayed"] == 5
    assert row["message_bytes_delayed"] == 15
    pages, after = [], None
    while True:
        page = look(api, name, count=2, **({"after": after} if after else {}))
        pages += keys(page)
        after = page["next"]
        if after is None:
            break
    assert pages == keys(found)


def test_it_counts_what_has_no_queue_when_it_is_due(api: httpx.Client, name: str) -> None:
    api.delete(path("queues", VHOST, name)).raise_for_status()
    for _ in range(2):
        publish(api, name, "k", 1)
    deadline = time.monotonic() + 30
    while True:
        counters = api.get(path("exchanges", VHOST, name)).json()["message_stats"]
        if counters["unroutable"] == 2:
            break
        assert time.monotonic() < deadline, counters
    assert (counters["delayed"], counters["released"]) == (2, 2)
    assert look(api, name)["items"] == []
    api.put(path("queues", VHOST, name), json={"durable": True}).raise_for_status()


def test_it_searches_by_a_part_of_the_routing_key_and_by_the_time(
    api: httpx.Client, name: str
) -> None:
    for hours, key in ((1, "order.eu"), (2, "order.us"), (3, "bill.eu"), (4, "order.eu")):
        publish(api, name, key, hours * HOUR_MS)
    items = look(api, name)["items"]
    found = look(api, name, routing_key="er.eu")
    assert [item["id"] for item in found["items"]] == [items[0]["id"], items[3]["id"]]
    second, third = items[1]["due"], items[2]["due"]
    assert keys(look(api, name, due_from=second, due_until=third)) == ["order.us", "bill.eu"]
    assert keys(look(api, name, due_from=third + 1)) == ["order.eu"]
    assert keys(look(api, name, due_until=second - 1)) == ["order.eu"]
    assert look(api, name, routing_key="nothing")["items"] == []


def test_it_cancels_one_message(api: httpx.Client, name: str) -> None:
    for hours in (1, 2, 3):
        publish(api, name, f"in.{hours}", hours * HOUR_MS)
    second = look(api, name)["items"][1]["id"]
    where = path("exchanges", VHOST, name, "delayed", second)
    assert api.delete(where).status_code == 204
    assert keys(look(api, name)) == ["in.1", "in.3"]
    assert api.delete(where).status_code == 404
    row = api.get(path("exchanges", VHOST, name)).json()
    assert row["messages_delayed"] == 2
    assert row["message_stats"]["cancelled"] == 1


@pytest.mark.parametrize("id", ["x", "1-2", "1-2-3-4", "-1-1-1", "9" * 30 + "-1-1"])
def test_no_other_id_cancels_anything(api: httpx.Client, name: str, id: str) -> None:
    publish(api, name, "k", HOUR_MS)
    assert api.delete(path("exchanges", VHOST, name, "delayed", id)).status_code == 400
    due, segment, position = map(int, look(api, name)["items"][0]["id"].split("-"))
    for wrong in (
        (due + 1, segment, position),
        (due, segment + 1, position),
        (due, segment, position + 1),
        (2**63 - 1, 2**32 - 1, 2**32 - 1),
    ):
        where = path("exchanges", VHOST, name, "delayed", "-".join(map(str, wrong)))
        assert api.delete(where).status_code == 404
    assert len(look(api, name)["items"]) == 1


@pytest.mark.parametrize(
    "query", [{"count": 0}, {"count": 501}, {"after": "soon"}, {"due_from": "tomorrow"}]
)
def test_it_refuses_odd_questions(api: httpx.Client, name: str, query: dict[str, Any]) -> None:
    answer = api.get(path("exchanges", VHOST, name, "delayed"), params=query)
    assert answer.status_code in (400, 422)


def test_an_exchange_without_delays_holds_nothing(api: httpx.Client) -> None:
    assert look(api, "amq.topic") == {"items": [], "searched": 0, "next": None}
    where = path("exchanges", VHOST, "amq.topic", "delayed", "1-1-1")
    assert api.delete(where).status_code == 404
    assert api.get(path("exchanges", VHOST, "missing", "delayed")).status_code == 404


def test_looking_needs_read_and_cancelling_configure_permission(
    api: httpx.Client, clients: dict[str, httpx.Client], name: str
) -> None:
    publish(api, name, "k", HOUR_MS)
    id = look(api, name)["items"][0]["id"]
    where = path("exchanges", VHOST, name, "delayed")
    user = "api-management"
    rights = path("permissions", VHOST, user)
    other = clients["management"]
    try:
        for configure, read, may_look, may_cancel in (
            ("", ".*", 200, 401),
            (".*", "", 401, 204),
        ):
            body = {"configure": configure, "write": ".*", "read": read}
            assert api.put(rights, json=body).is_success
            assert other.get(where).status_code == may_look
            assert other.delete(f"{where}/{id}").status_code == may_cancel
    finally:
        api.put(rights, json={"configure": ".*", "write": ".*", "read": ".*"})
