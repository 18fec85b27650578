"""Publishing and taking messages over HTTP."""

import base64
from typing import Any

import httpx
import pytest

from tests.amqp import raw
from tests.api.conftest import VHOST, path
from tests.appliance import Appliance

QUEUE = "messages"
WHERE = path("queues", VHOST, QUEUE)


@pytest.fixture(autouse=True)
def queue(api: httpx.Client) -> None:
    api.put(WHERE, json={"durable": True}).raise_for_status()
    api.delete(WHERE + "/contents").raise_for_status()


def publish(api: httpx.Client, **changes: Any) -> httpx.Response:
    body = {
        "properties": {},
        "routing_key": QUEUE,
        "payload": "hello",
        "payload_encoding": "string",
        **changes,
    }
    body = {key: value for key, value in body.items() if value is not ...}
    return api.post(path("exchanges", VHOST, "amq.default", "publish"), json=body)


def get(api: httpx.Client, **changes: Any) -> httpx.Response:
    body = {"count": 10, "ackmode": "ack_requeue_false", "encoding": "auto", **changes}
    body = {key: value for key, value in body.items() if value is not ...}
    return api.post(WHERE + "/get", json=body)


def test_a_message_goes_in_and_comes_out(api: httpx.Client) -> None:
    answer = publish(api)
    assert (answer.status_code, answer.json()) == (200, {"routed": True})
    assert get(api).json() == [
        {
            "payload_bytes": 5,
            "redelivered": False,
            "exchange": "",
            "routing_key": QUEUE,
            "message_count": 0,
            "properties": [],
            "payload": "hello",
            "payload_encoding": "string",
        }
    ]
    assert get(api).json() == []


def test_what_no_queue_takes_is_not_routed(api: httpx.Client) -> None:
    assert publish(api, routing_key="nobody").json() == {"routed": False}


def test_what_a_full_queue_refuses_is_a_bad_request(api: httpx.Client) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    api.put(path("queues", VHOST, "small"), json={"arguments": arguments}).raise_for_status()
    assert publish(api, routing_key="small").json() == {"routed": True}
    answer = publish(api, routing_key="small")
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "bad_request",
        "reason": "Unable to publish message. Check queue limits.",
    }


def test_properties_come_back_as_they_were(api: httpx.Client) -> None:
    properties = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c/%2F",
        "reply_to": "q",
        "expiration": "60000",
        "message_id": "m é",
        "timestamp": 1700000000,
        "type": "t",
        "app_id": "a",
        "headers": {
            "text": "é",
            "whole": 7,
            "large": 2**40,
            "negative": -1,
            "real": 1.5,
            "yes": True,
            "nothing": None,
            "list": [1, "two", {"three": 3}],
            "table": {"deep": {"deeper": 1}},
        },
    }
    assert publish(api, properties=properties).json() == {"routed": True}
    assert get(api).json()[0]["properties"] == properties


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", "é\n\u2028".encode(), bytes(range(256))])
def test_any_bytes_survive_as_base64(api: httpx.Client, body: bytes) -> None:
    text = base64.b64encode(body).decode()
    assert publish(api, payload=text, payload_encoding="base64").json() == {"routed": True}
    message = get(api, ackmode="ack_requeue_true").json()[0]
    assert message["payload_bytes"] == len(body)
    if message["payload_encoding"] == "string":
        assert message["payload"].encode() == body
    else:
        assert base64.b64decode(message["payload"]) == body
        with pytest.raises(UnicodeDecodeError):
            body.decode()
    message = get(api, encoding="base64").json()[0]
    assert message["payload_encoding"] == "base64"
    assert base64.b64decode(message["payload"]) == body


@pytest.mark.parametrize("ackmode", ["ack_requeue_true", "reject_requeue_true"])
def test_the_requeueing_modes_put_messages_back_in_order(api: httpx.Client, ackmode: str) -> None:
    for number in range(3):
        publish(api, payload=str(number))
    for _ in range(2):
        taken = get(api, ackmode=ackmode).json()
        assert [message["payload"] for message in taken] == ["0", "1", "2"]
    assert [message["redelivered"] for message in get(api).json()] == [True] * 3


def test_a_body_may_be_cut_but_its_size_is_told(api: httpx.Client) -> None:
    publish(api, payload="x" * 1000)
    message = get(api, truncate=10).json()[0]
    assert message["payload"] == "x" * 10
    assert message["payload_bytes"] == 1000


@pytest.mark.parametrize(
    "body",
    [
        ('\N{LATIN SMALL LETTER E WITH ACUTE}\0\n"x' * 150_000).encode(),
        b"\xff\xfe1" * 300_000,
        b"text to its end, but for one octet " * 20_000 + b"\xff",
    ],
    ids=["text", "octets", "octets behind text"],
)
@pytest.mark.parametrize("encoding", ["auto", "base64"])
def test_a_large_body_survives_in_pieces(api: httpx.Client, body: bytes, encoding: str) -> None:
    """As one piece it held up everybody's requests."""
    publish(api, payload="first")
    text = base64.b64encode(body).decode()
    assert publish(api, payload=text, payload_encoding="base64").json() == {"routed": True}
    publish(api, payload="last")
    wanted = {"count": 3, "encoding": encoding}
    peeked = api.post(WHERE + "/peek", json=wanted).json()
    taken = get(api, **wanted).json()
    for rows in (peeked, taken):
        assert [row["payload_bytes"] for row in rows] == [5, len(body), 4]
        row = rows[1]
        if row["payload_encoding"] == "string":
            assert row["payload"].encode() == body
        else:
            assert base64.b64decode(row["payload"]) == body
        assert (row["payload_encoding"] == "string") == (encoding == "auto" and b"\xff" not in body)
        assert row["properties"] == []


@pytest.mark.parametrize("place", [4, 64 * 1024, 64 * 1024 + 4])
def test_base64_with_an_end_in_its_middle_is_refused(api: httpx.Client, place: int) -> None:
    text = "A" * (place - 2) + "==" + "AAAA" * 40_000
    answer = publish(api, payload=text, payload_encoding="base64")
    assert (answer.status_code, answer.json()["reason"]) == (400, "payload is not base64")


def test_a_body_over_the_limit_stays_and_can_be_seen_where_it_begins(
    api: httpx.Client, shared_leveret: Appliance
) -> None:
    large = b"0123456789" * 250_000
    where = (shared_leveret.host, shared_leveret.amqp_port)
    with raw.Client.open(where, virtual_host=VHOST) as client:
        for body in (b"small", large):
            client.publish(1, "", QUEUE, body)
        client.fence(1)
    assert [row["payload"] for row in get(api).json()] == ["small"]
    for answer in (get(api), api.post(WHERE + "/peek", json={"count": 1, "encoding": "auto"})):
        assert answer.status_code == 400
        assert "2500000 bytes" in answer.json()["reason"]
        assert "get_bytes_max" in answer.json()["reason"]
    assert get(api, truncate=10).json()[0]["payload"] == "0123456789"
    assert get(api).json() == []


def test_count_bounds_what_is_taken(api: httpx.Client) -> None:
    for number in range(5):
        publish(api, payload=str(number))
    taken = get(api, count=2).json()
    assert [message["payload"] for message in taken] == ["0", "1"]
    assert [message["message_count"] for message in taken] == [4, 3]
    assert len(get(api, count=100).json()) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"properties": ...}, "properties"),
        ({"routing_key": ...}, "routing_key"),
        ({"payload": ...}, "payload"),
        ({"payload_encoding": ...}, "payload_encoding"),
        ({"payload_encoding": "hex"}, "payload_encoding"),
        ({"payload": "no base64!", "payload_encoding": "base64"}, "base64"),
        ({"payload": 5}, "payload"),
        ({"properties": "x"}, "properties"),
        ({"properties": {"headers": 5}}, "headers"),
        ({"properties": {"delivery_mode": "x"}}, "delivery_mode"),
        ({"properties": {"expiration": "soon"}}, "expiration"),
        ({"properties": {"priority": 256}}, "priority"),
        ({"routing_key": "x" * 256}, "routing_key"),
    ],
)
def test_a_wrong_message_is_refused_by_what_is_wrong(
    api: httpx.Client, changes: dict[str, Any], says: str
) -> None:
    answer = publish(api, **changes)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "bad_request"
    assert says in answer.json()["reason"]
    assert get(api).json() == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"count": ...}, "count"),
        ({"ackmode": ...}, "ackmode"),
        ({"encoding": ...}, "encoding"),
        ({"count": "many"}, "count"),
        ({"count": -1}, "count"),
        ({"ackmode": "keep"}, "ackmode"),
        ({"encoding": "hex"}, "encoding"),
    ],
)
def test_a_wrong_get_is_refused_by_what_is_wrong(
    api: httpx.Client, changes: dict[str, Any], says: str
) -> None:
    publish(api)
    answer = get(api, **changes)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["reason"]
    assert len(get(api).json()) == 1


def test_publishing_to_an_exchange_that_is_missing_is_not_found(api: httpx.Client) -> None:
    body = {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"}
    answer = api.post(path("exchanges", VHOST, "missing", "publish"), json=body)
    assert answer.status_code == 404
    assert answer.json()["error"] == "not_found"


def test_a_reply_goes_to_the_client_that_asked(
    api: httpx.Client, shared_leveret: Appliance
) -> None:
    """A server may answer over HTTP: to whom, only the request tells."""
    address = (shared_leveret.host, shared_leveret.amqp_port)
    with raw.Client.open(address, virtual_host=VHOST) as client:
        pseudo = "amq.rabbitmq.reply-to"
        client.call(1, "basic.consume", queue=pseudo, no_ack=True, consumer_tag="replies")
        client.publish(1, "", QUEUE, b"ping", reply_to=pseudo)
        client.fence(1)
        (request,) = get(api).json()
        asker = request["properties"]["reply_to"]
        answer = publish(api, routing_key=asker, properties={"correlation_id": "7"})
        assert (answer.status_code, answer.json()) == (200, {"routed": True})
        reply = client.expect_message(channel=1)
        assert (reply.body, reply.properties["correlation_id"]) == (b"hello", "7")
        client.call(1, "basic.cancel", consumer_tag="replies")
        assert publish(api, routing_key=asker).json() == {"routed": False}


def test_a_purge_drops_what_is_ready(api: httpx.Client) -> None:
    for _ in range(3):
        publish(api)
    assert api.delete(WHERE + "/contents").status_code == 204
    assert get(api).json() == []
    assert api.delete(path("queues", VHOST, "missing", "contents")).status_code == 404
