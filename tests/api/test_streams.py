"""Looking into streams over HTTP."""

from typing import Any

import httpx
import pytest

from tests.amqp import raw
from tests.api.conftest import VHOST, path
from tests.appliance import Appliance

NAME = "a/stream"
WHERE = path("queues", VHOST, NAME)


@pytest.fixture(autouse=True)
def stream(api: httpx.Client) -> Any:
    body = {"durable": True, "arguments": {"x-queue-type": "stream", "x-max-age": "7D"}}
    api.put(WHERE, json=body).raise_for_status()
    for number in range(3):
        answer = api.post(
            path("exchanges", VHOST, "amq.default", "publish"),
            json={
                "properties": {"delivery_mode": 2, "headers": {"n": number}},
                "routing_key": NAME,
                "payload": f"body {number}",
                "payload_encoding": "string",
            },
        )
        assert answer.json() == {"routed": True}
    yield
    api.delete(WHERE).raise_for_status()


def read(api: httpx.Client, **body: Any) -> httpx.Response:
    return api.post(f"{WHERE}/stream", json=body)


def test_it_reads_from_an_offset_on(api: httpx.Client) -> None:
    rows = read(api, offset=1, count=10).json()
    assert [(row["offset"], row["payload"]) for row in rows] == [(1, "body 1"), (2, "body 2")]
    assert rows[0]["properties"] == {
        "delivery_mode": 2,
        "headers": {"x-stream-offset": 1, "n": 1},
    }
    # It reads again and again.
    assert read(api, offset=1, count=10).json() == rows
    assert [row["offset"] for row in read(api, count=1).json()] == [0]
    assert [row["offset"] for row in read(api, offset="last", count=9).json()] == [2]
    assert [row["offset"] for row in read(api, offset="1", count=1).json()] == [1]
    (row,) = read(api, offset=0, count=1, truncate=2, encoding="base64").json()
    assert (row["payload"], row["payload_bytes"]) == ("Ym8=", 6)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"count": -1},
        {"count": "many"},
        {"offset": "middle", "count": 1},
        {"offset": [], "count": 1},
    ],
)
def test_it_refuses_what_it_cannot_read(api: httpx.Client, body: Any) -> None:
    assert read(api, **body).status_code == 400


def test_a_body_over_the_limit_ends_an_answer(api: httpx.Client, shared_leveret: Appliance) -> None:
    where = (shared_leveret.host, shared_leveret.amqp_port)
    with raw.Client.open(where, virtual_host=VHOST) as client:
        client.call(1, "confirm.select")
        client.publish(1, "", NAME, b"0123456789" * 250_000)
        client.expect("basic.ack", 1)  # it is on disk, and can be read
    assert [row["offset"] for row in read(api, offset=1, count=9).json()] == [1, 2]
    answer = read(api, offset=3, count=1)
    assert answer.status_code == 400
    assert "get_bytes_max" in answer.json()["reason"]
    (row,) = read(api, offset=3, count=1, truncate=10).json()
    assert (row["payload"], row["payload_bytes"]) == ("0123456789", 2_500_000)


def test_it_shows_the_stream(api: httpx.Client) -> None:
    row = api.get(WHERE).json()
    assert (row["type"], row["messages"]) == ("stream", 3)
    assert row["arguments"] == {"x-queue-type": "stream", "x-max-age": "7D"}
    assert (row["stream"]["first_offset"], row["stream"]["next_offset"]) == (0, 3)


def test_get_is_refused(api: httpx.Client) -> None:
    body = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    answer = api.post(f"{WHERE}/get", json=body)
    assert answer.status_code == 400
    assert "not supported by stream queues" in answer.json()["reason"]


def test_only_streams_are_read(api: httpx.Client) -> None:
    classic = path("queues", VHOST, "no stream")
    api.put(classic, json={"durable": True}).raise_for_status()
    assert api.post(f"{classic}/stream", json={"count": 1}).status_code == 400
    missing = path("queues", VHOST, "missing")
    assert api.post(f"{missing}/stream", json={"count": 1}).status_code == 404


def test_it_comes_back_with_its_definitions(api: httpx.Client) -> None:
    definitions = api.get(path("definitions", VHOST)).json()
    (queue,) = [row for row in definitions["queues"] if row["name"] == NAME]
    assert queue["arguments"] == {"x-queue-type": "stream", "x-max-age": "7D"}
    api.delete(WHERE).raise_for_status()
    api.post(path("definitions", VHOST), json=definitions).raise_for_status()
    assert api.get(WHERE).json()["type"] == "stream"


def test_it_finds_messages_by_a_key(api: httpx.Client) -> None:
    name = "an/index"
    body = {
        "durable": True,
        "arguments": {"x-queue-type": "stream", "x-stream-index": ["header:n", "message_id"]},
    }
    api.put(path("queues", VHOST, name), json=body).raise_for_status()
    for number in range(6):
        api.post(
            path("exchanges", VHOST, "amq.default", "publish"),
            json={
                "properties": {"delivery_mode": 2, "headers": {"n": number % 2}},
                "routing_key": name,
                "payload": f"body {number}",
                "payload_encoding": "string",
            },
        ).raise_for_status()
    where = path("streams", VHOST, name, "search")
    found = api.get(where, params={"key": "n", "value": "1", "from": "yesterday"}).json()
    assert [row["payload"] for row in found["messages"]] == ["body 5", "body 3", "body 1"]
    assert (found["complete"], found["reasons"], found["whole_from"]) == (True, [], None)
    times = [row["timestamp"] for row in found["messages"]]
    params = {"key": "header:n", "value": "1", "from": times[1], "to": times[1], "max": 1}
    assert len(api.get(where, params=params).json()["messages"]) == 1
    params = {"key": "n", "value": "MQ==", "value_encoding": "base64"}
    assert len(api.get(where, params=params).json()["messages"]) == 3
    params = {"key": "n", "value": "1", "to": "2020-01-01"}
    assert api.get(where, params=params).json()["messages"] == []
    for wrong, told in (
        ({"key": "n"}, "value"),
        ({"value": "1"}, "not indexed by"),
        ({"key": "n", "value": "1", "from": "noon"}, "'noon' is no time"),
        ({"key": "n", "value": "1", "from": "today", "to": "yesterday"}, "ends before it begins"),
        ({"key": "n", "value": "1", "max": 0}, "max must be"),
        ({"key": "n", "value": "1", "value_encoding": "base64"}, "is not base64"),
    ):
        refused = api.get(where, params=wrong)
        assert refused.status_code == 400 and told in refused.text, refused.text
    assert api.get(path("streams", VHOST, "none", "search"), params={"value": "1"}).status_code in (
        401,
        404,
    )
    api.delete(path("queues", VHOST, name)).raise_for_status()
