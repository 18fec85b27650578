"""Pausing and resuming a queue over HTTP, as in LavinMQ."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.conftest import PASSWORD, VHOST, path

QUEUE = "pausing"
WHERE = path("queues", VHOST, QUEUE)
GET = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.fixture(autouse=True)
def queue(api: httpx.Client) -> Iterator[None]:
    api.put(WHERE, json={"durable": True}).raise_for_status()
    yield
    api.delete(WHERE)


def state(api: httpx.Client) -> str:
    return str(api.get(WHERE).json()["state"])


def test_it_pauses_and_resumes(api: httpx.Client) -> None:
    assert state(api) == "running"
    for _ in range(2):
        answer = api.put(WHERE + "/pause")
        assert (answer.status_code, answer.content) == (204, b"")
        assert state(api) == "paused"
    for _ in range(2):
        assert api.put(WHERE + "/resume").status_code == 204
        assert state(api) == "running"


def test_a_person_may_look_into_a_paused_queue(api: httpx.Client) -> None:
    api.put(WHERE + "/pause").raise_for_status()
    message = {"properties": {}, "routing_key": QUEUE, "payload": "x", "payload_encoding": "string"}
    publish = path("exchanges", VHOST, "amq.default", "publish")
    assert api.post(publish, json=message).json() == {"routed": True}
    assert [one["payload"] for one in api.post(WHERE + "/get", json=GET).json()] == ["x"]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_missing_queue_is_not_found(api: httpx.Client, verb: str) -> None:
    answer = api.put(path("queues", VHOST, "nobody made this", verb))
    assert answer.status_code == 404
    assert api.put(path("queues", "no such vhost", QUEUE, verb)).status_code == 404


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_only_put_pauses(api: httpx.Client, method: str) -> None:
    assert api.request(method, WHERE + "/pause").status_code == 405
    assert state(api) == "running"


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_it_takes_the_right_to_configure_the_queue(
    api: httpx.Client, api_url: str, verb: str
) -> None:
    user = "api-reader"
    api.put(path("users", user), json={"password": PASSWORD, "tags": "management"})
    rights = {"configure": "^$", "write": ".*", "read": ".*"}
    api.put(path("permissions", VHOST, user), json=rights).raise_for_status()
    with httpx.Client(base_url=api_url, auth=(user, PASSWORD), timeout=30) as reader:
        answer = reader.put(f"{WHERE}/{verb}")
    assert answer.status_code == 401
    assert "configure" in answer.json()["reason"] or "access" in answer.json()["reason"].lower()
    assert state(api) == "running"
    api.delete(path("users", user))
