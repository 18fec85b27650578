"""Moving and copying messages over HTTP."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.conftest import PASSWORD, VHOST, path

WAIT_S = 60.0


@pytest.fixture
def names(api: httpx.Client) -> Iterator[tuple[str, str]]:
    """Two queues, the first with ten messages."""
    made = tuple(f"transfer-{uuid.uuid4().hex[:8]}" for _ in range(2))
    for name in made:
        api.put(path("queues", VHOST, name), json={"durable": True}).raise_for_status()
    for number in range(10):
        answer = api.post(
            path("exchanges", VHOST, "amq.default", "publish"),
            json={
                "routing_key": made[0],
                "payload": str(number),
                "payload_encoding": "string",
                "properties": {"delivery_mode": 2, "headers": {"odd": number % 2 == 1}},
            },
        )
        assert answer.json() == {"routed": True}
    yield made[0], made[1]
    for name in made:
        api.delete(path("queues", VHOST, name)).raise_for_status()


def payloads(api: httpx.Client, name: str) -> list[str]:
    answer = api.post(path("queues", VHOST, name, "peek"), json={"count": 100})
    answer.raise_for_status()
    return [row["payload"] for row in answer.json()]


def over(api: httpx.Client, id: int) -> Any:
    """The transfer when it is over."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        row = api.get(path("transfers", str(id))).raise_for_status().json()
        if row["ended"] is not None:
            return row
    raise AssertionError(f"transfer {id} is not over: {row}")


def test_it_previews_copies_and_moves(api: httpx.Client, names: tuple[str, str]) -> None:
    source, target = names
    asked = {"header": "odd", "value": "true"}
    found = api.post(path("queues", VHOST, source, "preview"), json=asked)
    assert found.json() == {"looked": 10, "matched": 5, "ready": 10}
    answer = api.post(path("queues", VHOST, source, "copy"), json={"target": target, "limit": 2})
    assert answer.status_code == 201
    assert over(api, answer.json()["id"])["state"] == "finished"
    answer = api.post(path("queues", VHOST, source, "move"), json={"target": target, **asked})
    assert answer.status_code == 201
    row = over(api, answer.json()["id"])
    assert (row["state"], row["handed_over"], row["user"]) == ("finished", 5, "api-administrator")
    assert payloads(api, target) == ["0", "1", "1", "3", "5", "7", "9"]
    assert payloads(api, source) == ["0", "2", "4", "6", "8"]
    rows = api.get(path("queues", VHOST, source, "transfers")).json()
    assert [each["mode"] for each in rows] == ["move", "copy"]
    assert [each["id"] for each in rows] == [
        each["id"] for each in api.get(path("transfers")).json() if each["source"] == source
    ]


@pytest.mark.parametrize(
    ("kind", "action"),
    [("queues", "move"), ("queues", "copy"), ("queues", "preview"), ("streams", "replay")],
)
def test_a_filter_that_it_does_not_know_is_refused_before_anything_is_handed_over(
    api: httpx.Client, names: tuple[str, str], kind: str, action: str
) -> None:
    source, target = names
    asked = {"search": {"key": "odd", "value": "true"}}
    if action != "preview":
        asked = {"target": target, **asked}
    answer = api.post(path(kind, VHOST, source, action), json=asked)
    assert answer.status_code == 400
    assert "search" in answer.json()["reason"]
    assert api.get(path("queues", VHOST, source, "transfers")).json() == []
    assert payloads(api, target) == []


def test_it_stops_one_and_then_takes_it_off_the_list(
    api: httpx.Client, names: tuple[str, str]
) -> None:
    source = names[0]
    exchange = f"nowhere-{source}"
    api.put(path("exchanges", VHOST, exchange), json={"type": "direct"}).raise_for_status()
    body = {"target": exchange, "target_type": "exchange"}
    id = api.post(path("queues", VHOST, source, "move"), json=body).json()["id"]
    assert api.delete(path("transfers", str(id))).status_code == 204
    row = over(api, id)
    assert (row["state"], row["handed_over"]) == ("stopped", 0)
    assert api.delete(path("transfers", str(id))).status_code == 204
    assert api.get(path("transfers", str(id))).status_code == 404
    assert api.delete(path("transfers", str(id))).status_code == 404
    assert api.delete(path("transfers", "one")).status_code == 404
    assert len(payloads(api, source)) == 10
    api.delete(path("exchanges", VHOST, exchange)).raise_for_status()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "target"),
        ({"target": 7}, "not_string"),
        ({"target": "nothing-there"}, "no queue 'nothing-there'"),
        ({"target": "t", "older_than": "soon"}, "not_integer"),
        ({"target": "t", "target_type": "topic"}, "target_type"),
        ({"target": "SELF"}, "same queue"),
        ({"target": "OTHER", "routing_key": "["}, "invalid regular expression"),
        ({"target": "OTHER", "value": "x"}, "both 'header' and 'value'"),
    ],
)
def test_bad_bodies_are_refused(
    api: httpx.Client, names: tuple[str, str], body: dict[str, Any], reason: str
) -> None:
    places = {"SELF": names[0], "OTHER": names[1]}
    asked = {key: places.get(str(value), value) for key, value in body.items()}
    answer = api.post(path("queues", VHOST, names[0], "move"), json=asked)
    assert answer.status_code in (400, 404)
    assert reason in answer.text


def test_a_user_needs_read_there_and_write_here_and_stops_only_own_ones(
    api: httpx.Client, names: tuple[str, str], api_url: str
) -> None:
    source, target = names
    user = f"mover-{source}"
    api.put(path("users", user), json={"password": PASSWORD, "tags": "management"})
    rights = path("permissions", VHOST, user)
    move = path("queues", VHOST, source, "move")
    with httpx.Client(base_url=api_url, auth=(user, PASSWORD), timeout=30) as few:
        assert few.post(move, json={"target": target}).status_code == 401
        api.put(rights, json={"configure": "", "write": "", "read": f"^{source}$"})
        answer = few.post(move, json={"target": target})
        assert answer.status_code in (401, 403) and "write access to queue" in answer.text
        api.put(rights, json={"configure": "", "write": f"^{target}$", "read": ""})
        assert "read access to queue" in few.post(move, json={"target": target}).text
        assert few.post(path("queues", VHOST, source, "preview"), json={}).status_code != 200
        api.put(rights, json={"configure": "", "write": f"^{target}$", "read": f"^{source}$"})
        # None matches, so that the order of what others see does not matter.
        body = {"target": target, "routing_key": "^none$"}
        own = few.post(move, json=body).json()["id"]
        assert over(few, own)["state"] == "finished"
        other = api.post(move, json=body).json()["id"]
        over(api, other)
        assert few.delete(path("transfers", str(other))).status_code == 401
        assert few.delete(path("transfers", str(own))).status_code == 204
        api.delete(rights)
        assert few.get(path("transfers")).json() == []
        assert few.get(path("transfers", str(other))).status_code == 404
    api.delete(path("users", user))


@pytest.fixture
def stream(api: httpx.Client) -> Iterator[str]:
    """A stream with ten messages and an index."""
    name = f"replay-{uuid.uuid4().hex[:8]}"
    arguments = {"x-queue-type": "stream", "x-stream-index": "message_id"}
    body = {"durable": True, "arguments": arguments}
    api.put(path("queues", VHOST, name), json=body).raise_for_status()
    for number in range(10):
        api.post(
            path("exchanges", VHOST, "amq.default", "publish"),
            json={
                "routing_key": name,
                "payload": str(number),
                "payload_encoding": "string",
                "properties": {"message_id": f"m{number % 2}"},
            },
        ).raise_for_status()
    yield name
    api.delete(path("queues", VHOST, name)).raise_for_status()


def test_it_replays_a_range_and_a_search_result(
    api: httpx.Client, stream: str, names: tuple[str, str]
) -> None:
    target = names[1]
    replay = path("streams", VHOST, stream, "replay")
    answer = api.post(replay, json={"target": target, "from": 2, "to": "4"})
    assert answer.status_code == 201
    row = over(api, answer.json()["id"])
    assert (row["state"], row["mode"], row["handed_over"]) == ("finished", "replay", 3)
    asked = {"target": target, "value": "m1", "from": "yesterday", "max": 2}
    answer = api.post(replay, json=asked)
    assert answer.json()["complete"] is True
    assert over(api, answer.json()["id"])["search"] == "message_id=m1"
    assert payloads(api, target) == ["2", "3", "4", "7", "9"]
    for body, reason in (
        ({"target": target, "from": "noon"}, "'noon' is no time"),
        ({"target": target, "from": 5, "to": 4}, "ends before it begins"),
        ({"target": target, "from": [1]}, "from"),
        ({}, "target"),
    ):
        answer = api.post(replay, json=body)
        assert answer.status_code == 400 and reason in answer.text, answer.text


def test_it_pauses_and_resumes_one(api: httpx.Client, stream: str, names: tuple[str, str]) -> None:
    replay = path("streams", VHOST, stream, "replay")
    id = str(api.post(replay, json={"target": names[1], "rate": 1}).json()["id"])
    assert api.post(path("transfers", id, "pause")).status_code == 204
    row = api.get(path("transfers", id)).json()
    assert (row["state"], row["rate"]) == ("paused", 1)
    answer = api.post(path("transfers", id, "resume"), json={"rate": -1})
    assert answer.status_code == 400 and "rate must be from 0" in answer.text
    assert api.post(path("transfers", id, "resume"), json={"rate": 1000}).status_code == 204
    assert over(api, int(id))["handed_over"] == 10
    assert api.post(path("transfers", id, "resume")).status_code == 400
    assert api.post(path("transfers", "one", "pause")).status_code == 404
    assert api.post(path("transfers", "9007199254740993", "pause")).status_code == 404
