"""The broker's log over HTTP, as text and live."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator

import httpx
import pika
import pytest
from django.http import HttpRequest

from api.logs import _events
from broker.process import logs
from broker.settings.bounds import LOG_READERS_MAX
from tests.api.conftest import TAGS, path
from tests.api.test_sessions import sign_in, token_in
from tests.appliance import Appliance

LIVE = "/api/livelog"


def connect(leveret: Appliance, vhost: str) -> None:
    credentials = pika.PlainCredentials("guest", "guest")
    parameters = pika.ConnectionParameters(leveret.host, leveret.amqp_port, vhost, credentials)
    pika.BlockingConnection(parameters).close()


@contextlib.contextmanager
def reading(client: httpx.Client, **more: str) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """The events of a live log: id, and severity, source and message."""
    headers = {"Last-Event-ID": more.pop("last")} if "last" in more else {}
    with client.stream("GET", LIVE, params=more, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert "Content-Encoding" not in answer.headers

        def events() -> Iterator[tuple[int, list[str]]]:
            number = 0
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: "):
                    yield number, json.loads(line[6:])

        yield events()


@pytest.mark.parametrize("where", ["/api/logs", LIVE])
def test_only_who_may_monitor_reads_the_log(
    clients: dict[str, httpx.Client], anonymous: httpx.Client, where: str
) -> None:
    assert anonymous.get(where).status_code == 401
    for tag in set(TAGS) - {"monitoring", "administrator"}:
        assert clients[tag].get(where).status_code == 401
    for tag in ("monitoring", "administrator"):
        with clients[tag].stream("GET", where) as answer:
            assert answer.status_code == 200


def test_the_log_comes_as_text(api: httpx.Client) -> None:
    answer = api.get("/api/logs")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "attachment" in answer.headers["Content-Disposition"]
    lines = answer.text.splitlines()
    assert any(" info leveret.broker: listening: " in line for line in lines)
    assert api.get("/api/logs", params={"level": "error"}).text.count(" info ") == 0
    assert api.get("/api/logs", params={"level": "loud"}).status_code == 400


def test_the_live_log_begins_with_what_was_written_and_goes_on(
    api: httpx.Client, clients: dict[str, httpx.Client], shared_leveret: Appliance
) -> None:
    where = path("vhosts", "api/live-log")
    api.put(where, json={}).raise_for_status()
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    api.put(path("permissions", "api/live-log", "guest"), json=everything).raise_for_status()
    with reading(clients["monitoring"]) as events:
        number, (severity, source, text) = next(events)
        assert severity in logs.LEVELS
        assert source
        assert text
        # A connection is a line of the log, written while the stream waits.
        connect(shared_leveret, "api/live-log")
        later = next(number for number, (_, _, text) in events if "api/live-log" in text)
        assert later > number
    with reading(clients["monitoring"], last=str(later - 1)) as events:
        assert next(events)[0] == later


def test_the_kept_lines_are_bounded_and_single() -> None:
    recent = logs.Recent()
    for number in range(logs.ENTRIES_KEPT + 50):
        text = f"{number}\nforged line " + "x" * 10_000
        recent.emit(logging.LogRecord("a", logging.WARNING, "", 0, text, None, None))
    assert len(recent.entries) == logs.ENTRIES_KEPT
    assert "\n" not in recent.entries[-1].text
    assert all(len(one.text) < logs.TEXT_MAX + 10 for one in recent.entries)
    numbers = [one.id for one in recent.entries]
    assert numbers == sorted(set(numbers))
    newest = recent.since(numbers[-4], "warning", 2)
    assert [one.id for one in newest] == numbers[-2:]
    assert recent.since(0, "error", 10) == []


def test_too_many_readers_are_refused(api: httpx.Client) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(reading(api))
        answer = api.get(LIVE)
        assert answer.status_code == 503
        assert answer.json()["error"] == "busy"
    # They give their places back when they go.
    while api.get("/api/logs").is_success:
        with api.stream("GET", LIVE) as answer:
            if answer.status_code == 200:
                break


async def test_readers_that_come_together_are_not_more_than_there_may_be() -> None:
    """All of them were let in before the first began to read."""
    answer = {"entries": [], "newest": 0, "epoch": 0}
    streams = [_events(HttpRequest(), answer, 0, "debug") for _ in range(LOG_READERS_MAX + 4)]
    begun = [await anext(stream, None) for stream in streams]
    assert begun.count(None) == 4
    for stream in streams:
        await stream.aclose()
    again = _events(HttpRequest(), answer, 0, "debug")
    assert await anext(again, None) is not None
    await again.aclose()


def test_a_new_password_ends_a_live_log_that_waits(
    api: httpx.Client, api_url: str, clients: dict[str, httpx.Client]
) -> None:
    where, told = path("users", "log-reader"), {"tags": "monitoring"}
    api.put(where, json={**told, "password": "first"}).raise_for_status()
    with (
        httpx.Client(base_url=api_url, auth=("log-reader", "first"), timeout=30) as client,
        reading(client) as events,
    ):
        assert next(events)
        api.put(where, json={**told, "password": "second"}).raise_for_status()
        # The stream ends; without its end the reading would time out.
        assert list(events) is not None
    api.delete(where)


@pytest.mark.parametrize("how", ["signed out", "deleted"])
def test_the_end_of_a_session_ends_its_live_log(
    api: httpx.Client, anonymous: httpx.Client, how: str
) -> None:
    where = path("users", "log-session")
    api.put(where, json={"tags": "monitoring", "password": "first"}).raise_for_status()
    assert sign_in(anonymous, "log-session", "first").status_code == 302
    token = token_in(anonymous.get("/log"))
    with reading(anonymous) as events:
        assert next(events)
        if how == "signed out":
            other = httpx.Client(base_url=anonymous.base_url, cookies=anonymous.cookies, timeout=60)
            answer = other.post("/logout", data={"csrfmiddlewaretoken": token})
            assert answer.status_code == 302
        else:
            api.delete(where).raise_for_status()
        assert list(events) is not None
