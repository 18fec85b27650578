"""What a person does to what runs: consumers cancelled, prefetch changed, vhosts protected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pika
import pytest

from tests.api.conftest import PASSWORD, VHOST, path
from tests.appliance import Appliance

QUEUE = "interventions"
WHERE = path("queues", VHOST, QUEUE)


@pytest.fixture(autouse=True)
def queue(api: httpx.Client) -> Iterator[None]:
    api.put(WHERE, json={}).raise_for_status()
    yield
    api.delete(WHERE)


@pytest.fixture
def channel(shared_leveret: Appliance, clients: dict[str, httpx.Client]) -> Iterator[Any]:
    """A channel of the user with the tag management."""
    parameters = pika.ConnectionParameters(
        shared_leveret.host,
        shared_leveret.amqp_port,
        VHOST,
        pika.PlainCredentials("api-management", PASSWORD),
    )
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    if connection.is_open:
        connection.close()


def consumer_of(api: httpx.Client) -> dict[str, Any]:
    (row,) = [
        row for row in api.get(path("consumers", VHOST)).json() if row["queue"]["name"] == QUEUE
    ]
    found: dict[str, Any] = row
    return found


def publish(channel: Any, count: int) -> None:
    for number in range(count):
        channel.basic_publish("", QUEUE, b"x" * (number + 1))


def received(channel: Any, count: int) -> list[int]:
    """Tags of the next deliveries."""
    tags: list[int] = []
    for method, _, _ in channel.consume(QUEUE, inactivity_timeout=60):
        assert method is not None
        tags.append(method.delivery_tag)
        if len(tags) == count:
            return tags
    return tags


# -- cancelling a consumer ---------------------------------------------------------------------


def test_it_cancels_a_consumer_and_tells_the_client(
    api: httpx.Client, channel: Any, clients: dict[str, httpx.Client]
) -> None:
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(QUEUE, lambda *_: None, consumer_tag="a/b c")
    details = consumer_of(api)["channel_details"]
    where = path("consumers", VHOST, details["connection_name"], str(details["number"]), tag)
    # Another's, for who is no administrator.
    assert clients["monitoring"].delete(where).status_code == 401
    assert clients["policymaker"].delete(where).status_code in (401, 404)
    assert api.delete(where).status_code == 204
    while not cancelled:
        channel.connection.process_data_events(time_limit=10)
    assert cancelled == [tag]
    assert api.get(WHERE).json()["consumers"] == 0
    assert api.delete(where).status_code == 404


def test_one_may_cancel_ones_own_consumer(
    channel: Any, clients: dict[str, httpx.Client], api: httpx.Client
) -> None:
    channel.basic_consume(QUEUE, lambda *_: None, consumer_tag="own")
    name = consumer_of(api)["channel_details"]["connection_name"]
    where = path("consumers", VHOST, name, "1", "own")
    assert clients["management"].delete(where).status_code == 204


@pytest.mark.parametrize("number", ["x", "-1", "99999999999", "2"])
def test_a_consumer_that_is_not_there_is_not_found(
    api: httpx.Client, channel: Any, number: str
) -> None:
    channel.basic_consume(QUEUE, lambda *_: None, consumer_tag="t")
    name = consumer_of(api)["channel_details"]["connection_name"]
    assert api.delete(path("consumers", VHOST, name, number, "t")).status_code == 404
    assert api.delete(path("consumers", "/", name, "1", "t")).status_code == 404


# -- prefetch ----------------------------------------------------------------------------------


def test_a_raised_prefetch_reaches_a_consumer_that_runs(
    api: httpx.Client, channel: Any, clients: dict[str, httpx.Client]
) -> None:
    publish(channel, 5)
    channel.basic_qos(prefetch_count=2)
    assert received(channel, 2) == [1, 2]
    details = consumer_of(api)["channel_details"]
    where = path("channels", details["name"])
    assert clients["monitoring"].put(where, json={"prefetch": 4}).status_code == 401
    assert api.put(where, json={"prefetch": 4}).status_code == 204
    assert received(channel, 2) == [3, 4]
    row = consumer_of(api)
    assert row["prefetch_count"] == 4
    assert api.get(where).json()["prefetch_count"] == 4
    assert api.put(where, json={"prefetch": 0}).status_code == 204
    assert received(channel, 1) == [5]


@pytest.mark.parametrize("prefetch", [-1, 65536, "many", None])
def test_a_prefetch_that_is_none_is_refused(api: httpx.Client, channel: Any, prefetch: Any) -> None:
    channel.basic_consume(QUEUE, lambda *_: None)
    where = path("channels", consumer_of(api)["channel_details"]["name"])
    assert api.put(where, json={"prefetch": prefetch}).status_code == 400


# -- what is unacknowledged --------------------------------------------------------------------


def test_it_shows_what_consumers_hold(api: httpx.Client, channel: Any) -> None:
    publish(channel, 3)
    tags = received(channel, 3)
    channel.basic_ack(tags[1])
    channel.connection.process_data_events()
    while len(rows := api.get(WHERE + "/unacked").json()) != 2:
        pass
    assert [row["delivery_tag"] for row in rows] == [tags[0], tags[2]]
    assert [row["payload_bytes"] for row in rows] == [1, 3]
    consumer = consumer_of(api)
    for row in rows:
        assert row["consumer_tag"] == consumer["consumer_tag"]
        assert row["channel_name"] == consumer["channel_details"]["name"]
        assert row["unacked_for_seconds"] is None or row["unacked_for_seconds"] >= 0
    assert len(api.get(WHERE + "/unacked", params={"count": 1}).json()) == 1
    assert api.get(WHERE + "/unacked", params={"count": 99999}).status_code == 400
    assert api.get(path("queues", VHOST, "missing", "unacked")).status_code == 404


def test_it_shows_what_a_get_holds(api: httpx.Client, channel: Any) -> None:
    publish(channel, 1)
    method, _, _ = channel.basic_get(QUEUE)
    (row,) = api.get(WHERE + "/unacked").json()
    assert (row["delivery_tag"], row["consumer_tag"]) == (method.delivery_tag, "")


# -- restarting a queue ------------------------------------------------------------------------


def test_a_queue_that_runs_cannot_be_restarted(api: httpx.Client) -> None:
    answer = api.put(WHERE + "/restart")
    assert answer.status_code == 400
    assert "is running" in answer.json()["reason"]


# -- protection --------------------------------------------------------------------------------


def test_a_protected_vhost_is_not_deleted(api: httpx.Client) -> None:
    """With the words of RabbitMQ 4."""
    name = "api/protected"
    where = path("vhosts", name)
    api.put(where, json={}).raise_for_status()
    protection = where + "/deletion/protection"
    assert api.get(where).json()["protected_from_deletion"] is False
    assert api.post(protection).status_code == 204
    row = api.get(where).json()
    assert row["protected_from_deletion"] is True
    assert row["metadata"]["protected_from_deletion"] is True
    answer = api.delete(where)
    assert answer.status_code == 412
    assert answer.json() == {
        "error": "precondition_failed",
        "reason": f"Refusing to delete virtual host '{name}' because it is protected from deletion",
    }
    assert api.put(where, json={"description": "changed"}).status_code == 204
    assert api.get(where).json()["protected_from_deletion"] is True
    assert api.delete(protection).status_code == 204
    assert api.delete(where).status_code == 204
    assert api.post(protection).status_code == 404


def test_a_vhost_is_made_protected(api: httpx.Client) -> None:
    where = path("vhosts", "api/made-protected")
    api.put(where, json={"protected_from_deletion": True}).raise_for_status()
    assert api.delete(where).status_code == 412
    api.put(where, json={"protected_from_deletion": False}).raise_for_status()
    assert api.delete(where).status_code == 204


# -- users -------------------------------------------------------------------------------------


def test_bulk_delete_deletes_all_or_none(api: httpx.Client) -> None:
    names = ["api-bulk-1", "api-bulk-2"]
    for name in names:
        api.put(path("users", name), json={"password": "x", "tags": ""}).raise_for_status()
    answer = api.post("/api/users/bulk-delete", json={"users": [*names, "api-missing"]})
    assert (answer.status_code, answer.json()["reason"]) == (400, "no_such_user: api-missing")
    assert all(api.get(path("users", name)).is_success for name in names)
    answer = api.post("/api/users/bulk-delete", json={"users": [*names, names[0]]})
    assert answer.status_code == 204
    assert all(api.get(path("users", name)).status_code == 404 for name in names)


@pytest.mark.parametrize("body", [b"{}", b"not JSON", b'{"users": "x"}', b'{"users": []}'])
@pytest.mark.parametrize("tag", ["none", "management", "policymaker", "monitoring"])
def test_bulk_delete_asks_for_the_right_before_it_looks_at_the_body(
    clients: dict[str, httpx.Client], tag: str, body: bytes
) -> None:
    answer = clients[tag].post("/api/users/bulk-delete", content=body)
    assert answer.status_code == 401
    assert answer.json() == {"error": "not_authorised", "reason": "Not administrator user"}


# -- what the node says of itself --------------------------------------------------------------


def test_feature_flags_are_true(api: httpx.Client) -> None:
    flags = {row["name"]: row for row in api.get("/api/feature-flags").json()}
    assert flags["stream_queue"]["state"] == "enabled"
    assert flags["khepri_db"]["state"] == "unavailable"
    assert set(flags["quorum_queue"]) == {
        "name", "desc", "doc_url", "state", "stability", "provided_by"
    }  # fmt: skip
    enable = "/api/feature-flags/{}/enable"
    assert api.put(enable.format("stream_queue")).status_code == 204
    assert api.put(enable.format("khepri_db")).status_code == 400
    assert api.put(enable.format("nothing")).status_code == 400


def test_the_version_is_one_that_tools_know(anonymous: httpx.Client, api: httpx.Client) -> None:
    assert (
        anonymous.get("/api/version").json() == api.get("/api/overview").json()["rabbitmq_version"]
    )


def test_the_settings_in_force_are_shown_without_secrets(api: httpx.Client) -> None:
    settings = api.get("/api/config/effective").json()
    assert settings["metrics_port"] == -1
    assert settings["bind"] == ["127.0.0.1"]
    assert "default_password" not in settings


def test_a_reset_starts_the_totals_anew(api: httpx.Client, channel: Any) -> None:
    publish(channel, 20)
    channel.connection.process_data_events()
    while api.get("/api/overview").json()["message_stats"]["publish"] < 20:
        pass
    assert api.delete("/api/reset/no-such-node").status_code == 404
    assert api.delete("/api/reset").status_code == 204
    assert api.get("/api/overview").json()["message_stats"]["publish"] < 20
    assert api.get(WHERE).json()["messages"] == 20


def test_a_client_reads_the_reason_as_it_was_sent(api: httpx.Client, channel: Any) -> None:
    """A header is UTF-8, as clients send it."""
    channel.queue_declare(QUEUE, passive=True)
    headers = {"X-Reason": "Плановые работы".encode()}
    user = path("connections", "username", "api-management")
    assert api.delete(user, headers=headers).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        channel.connection.process_data_events(60)
        channel.queue_declare(QUEUE, passive=True)
    assert "Плановые работы" in caught.value.reply_text
