"""Odd names go there and back unaltered, in every kind of path."""

from urllib.parse import quote

import httpx
import pytest

from tests.amqp.raw import Client
from tests.api.conftest import VHOST, path
from tests.appliance import Appliance

NAMES = [
    "plain",
    "/",
    "a/b",
    "//",
    "%",
    "%2F",
    "%252F",
    "a%b",
    "100%",
    "?",
    "a?b=c",
    "#",
    "a#b",
    "+",
    "a+b c",
    " ",
    " lead and trail ",
    "&",
    "a&b=c;d",
    ";",
    ":",
    "@",
    "=",
    ",",
    "~",
    "\\",
    "'",
    '"',
    "`",
    "<img src=x onerror=alert(1)>",
    "{{ 7 }}{% now 'Y' %}",
    "${7*7}",
    "a|b",
    "^$.*[a-z]+",
    "é",
    "naïve/ünïcode",
    "日本語",
    "مرحبا",
    "\u202eright-to-left",
    "🐇",
    "\t",
    "x" * 255,
    "a.b.c",
    "...",
    "null",
    "0",
    "detailed.",
    "-",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_keeps_its_name(api: httpx.Client, name: str) -> None:
    where = path("queues", VHOST, name)
    assert api.put(where, json={"durable": True}).status_code == 201
    assert api.put(where, json={"durable": True}).status_code == 204
    found = api.get(where)
    assert found.status_code == 200, found.text
    assert (found.json()["name"], found.json()["vhost"]) == (name, VHOST)
    assert name in [row["name"] for row in api.get(path("queues", VHOST)).json()]
    assert api.delete(where).status_code == 204
    assert api.get(where).status_code == 404


@pytest.mark.parametrize("name", NAMES)
def test_an_exchange_and_its_bindings_keep_their_names(api: httpx.Client, name: str) -> None:
    queue = "q " + name[:250]
    queue = queue if len(queue.encode()) <= 255 else "q"
    exchange = path("exchanges", VHOST, name)
    assert api.put(exchange, json={"type": "topic"}).status_code == 201
    assert api.put(path("queues", VHOST, queue), json={}).status_code == 201
    between = path("bindings", VHOST, "e", name, "q", queue)
    bound = api.post(between, json={"routing_key": name, "arguments": {"a": name}})
    assert bound.status_code == 201, bound.text
    one = api.get(httpx.URL(str(api.base_url)).join(between).join(bound.headers["Location"]))
    assert one.status_code == 200, (bound.headers["Location"], one.text)
    row = one.json()
    assert row["source"] == name
    assert row["destination"] == queue
    assert row["routing_key"] == name
    assert row["arguments"] == {"a": name}
    listed = api.get(between).json()
    assert [row["properties_key"] for row in listed] == [row["properties_key"]]
    assert api.delete(f"{between}/{path(row['properties_key'])[5:]}").status_code == 204
    assert api.get(between).json() == []
    assert api.delete(path("queues", VHOST, queue)).status_code == 204
    assert api.delete(exchange).status_code == 204


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_vhost_keeps_its_name(api: httpx.Client, name: str) -> None:
    name = f"vhost {name}"[:200]
    where = path("vhosts", name)
    assert api.put(where, json={"description": name}).status_code == 201
    found = api.get(where).json()
    assert (found["name"], found["description"]) == (name, name)
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.put(path("permissions", name, "api-administrator"), json=rights).is_success
    assert api.put(path("queues", name, "q"), json={}).status_code == 201
    assert [row["vhost"] for row in api.get(path("queues", name)).json()] == [name]
    assert api.delete(where).status_code == 204
    assert api.get(where).status_code == 404


@pytest.mark.parametrize("name", NAMES[1::2])
def test_a_user_keeps_its_name(api: httpx.Client, api_url: str, name: str) -> None:
    name = name.replace(":", "") + "user"  # basic authentication cannot say a colon
    where = path("users", name)
    made = api.put(where, json={"password": name, "tags": ["management"]})
    assert made.status_code == 201, made.text
    assert api.get(where).json()["name"] == name
    rights = {"configure": name, "write": "", "read": "^$"}
    if api.put(path("permissions", VHOST, name), json=rights).status_code == 201:
        row = api.get(path("permissions", VHOST, name)).json()
        assert row == {"user": name, "vhost": VHOST, **rights}
    me = httpx.get(api_url + "/api/whoami", auth=(name.encode(), name.encode()), timeout=60)
    assert me.json()["name"] == name
    assert api.delete(where).status_code == 204


@pytest.mark.parametrize("broken", ["%FF", "%C3%28", "%ED%A0%80"])
def test_a_name_that_is_not_utf_8_is_not_found(api: httpx.Client, broken: str) -> None:
    answer = api.get(f"/api/queues/%2F/{broken}")
    assert answer.status_code == 404
    assert answer.json()["error"] == "Object Not Found"


def test_names_of_clients_that_are_not_utf_8_are_asked_for_as_they_are_shown(
    api: httpx.Client, shared_leveret: Appliance
) -> None:
    address = (shared_leveret.host, shared_leveret.amqp_port)
    with Client.open(address, virtual_host=VHOST) as client:
        client.call(1, "queue.declare", queue=b"odd \xff<b>")
        client.call(1, "exchange.declare", exchange=b"odd \xfe", type="topic")
        client.call(1, "queue.bind", queue=b"odd \xff<b>", exchange=b"odd \xfe", routing_key="#")
        for name in (b"two \xff", b"two \xfe"):
            client.call(1, "queue.declare", queue=name)
    names = {row["name"] for row in api.get(path("queues", VHOST)).json()}
    assert "odd \ufffd<b>" in names
    queue = path("queues", VHOST, "odd \ufffd<b>")
    exchange = path("exchanges", VHOST, "odd \ufffd")
    between = path("bindings", VHOST, "e", "odd \ufffd", "q", "odd \ufffd<b>")
    message = {"properties": {}, "routing_key": "k", "payload": "x", "payload_encoding": "string"}
    assert api.post(exchange + "/publish", json=message).json() == {"routed": True}
    assert api.get(queue).json()["name"] == "odd \ufffd<b>"
    assert [row["routing_key"] for row in api.get(between).json()] == ["#"]
    bound = api.get(queue + "/bindings").json()
    assert sorted(row["source"] for row in bound) == ["", "odd \ufffd"]
    take = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    assert [got["payload"] for got in api.post(queue + "/get", json=take).json()] == ["x"]
    assert api.delete(between + "/%2523").status_code == 204
    for where in (queue + "/contents", queue, exchange):
        assert api.delete(where).status_code == 204, where
    assert api.get(queue).status_code == 404
    # Which of two is meant nobody can tell.
    assert api.delete(path("queues", VHOST, "two \ufffd")).status_code == 404
    with Client.open(address, virtual_host=VHOST) as client:
        for name in (b"two \xff", b"two \xfe"):
            client.call(1, "queue.declare", queue=name, passive=True)
            client.call(1, "queue.delete", queue=name)


def test_a_binding_is_found_by_a_key_that_is_quoted_once(api: httpx.Client) -> None:
    """RabbitMQ quotes the routing key within the key itself, so that it has to be quoted twice in
    a path. Clients that do it once meant the same."""
    queue = "quoted-once"
    api.put(path("queues", VHOST, queue), json={}).raise_for_status()
    between = path("bindings", VHOST, "e", "amq.topic", "q", queue)
    for key in ("a/b c%20~é#", "plain", "~"):
        for arguments in ({}, {"x": 1}):
            body = {"routing_key": key, "arguments": arguments}
            made = api.post(between, json=body)
            assert made.status_code == 201
            name = made.headers["Location"].partition("/")[2]
            assert api.get(f"{between}/{name}").json()["routing_key"] == key
            hashed = f"~{name.rpartition('~')[2]}" if arguments else ""
            once = quote(key + hashed, safe="")
            assert api.get(f"{between}/{once}").json()["arguments"] == arguments
            assert api.delete(f"{between}/{once}").status_code == 204
            assert api.get(f"{between}/{name}").status_code == 404


def test_the_real_key_of_a_binding_wins_over_one_that_is_quoted_once(api: httpx.Client) -> None:
    queue = "quoted-alike"
    api.put(path("queues", VHOST, queue), json={}).raise_for_status()
    between = path("bindings", VHOST, "e", "amq.topic", "q", queue)
    for key in ("a%20b", "a b", "a+b", ""):
        api.post(between, json={"routing_key": key}).raise_for_status()
    # `a+b` is the real key of `a b`.
    assert api.get(f"{between}/a%2Bb").json()["routing_key"] == "a b"
    assert api.get(f"{between}/a%252Bb").json()["routing_key"] == "a+b"
    assert api.get(f"{between}/~").json()["routing_key"] == ""
