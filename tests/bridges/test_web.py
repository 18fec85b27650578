"""Messages carried over HTTP, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from management.bridges.web import retry_after
from tests.bridges.conftest import Bench, ready, taken, until


class Asked(NamedTuple):
    """One request that came."""

    target: str
    headers: dict[str, str]
    body: bytes


class Site:
    """A server that answers with what `answers` says, in turn, and then with 200."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[str] = []
        """Status and headers; empty: the connection ends, `silent`: nothing comes."""
        self.at_once = self.most_at_once = 0
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                original = dict(line.split(": ", 1) for line in head[1:] if line)
                headers |= {name.lower(): value for name, value in original.items()}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append(Asked(head[0], headers, body))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                await self.is_open.wait()
                self.at_once -= 1
                answer = self.answers.pop(0) if self.answers else "200 OK\r\n"
                if answer == "silent":
                    continue
                if not answer:
                    break
                writer.write(f"HTTP/1.1 {answer}Content-Length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    yield site
    server.close()


async def test_each_message_is_a_request(bench: Bench, site: Site) -> None:
    headers = {"Kind": "order", "n": 7, "nested": {"a": 1}, "Forwarded-For": "1.2.3.4"}
    bodies = await bench.publish(5, headers=headers, content_type="text/plain", message_id="m-1")
    await bench.put(
        dest_uri=site.url.replace("//", "//ann:s3cret@") + "/hook?x=1",
        dest_headers={"X-Team": "billing"},
        dest_signature_secret="hush",
    )
    row = await bench.until(lambda row: row["message_count"] == 5)
    assert [asked.body for asked in site.asked] == bodies
    assert row["dest_uri"] == f"{site.url}/hook"
    asked = site.asked[0]
    assert asked.target == "POST /hook?x=1 HTTP/1.1"
    assert asked.headers["content-type"] == "text/plain"
    assert asked.headers["authorization"] == "Basic YW5uOnMzY3JldA=="
    assert asked.headers["x-team"] == "billing"
    assert (asked.headers["x-kind"], asked.headers["x-n"]) == ("order", "7")
    assert "x-nested" not in asked.headers
    assert "x-forwarded-for" not in asked.headers
    assert asked.headers["x-message-id"] == asked.headers["idempotency-key"] == "m-1"
    signed = asked.headers["x-shovel-timestamp"].encode() + b"." + asked.body
    digest = hmac.digest(b"hush", signed, hashlib.sha256).hex()
    assert asked.headers["x-shovel-signature"] == f"sha256={digest}"
    assert await ready(bench.here, bench.queue) == 0
    assert "s3cret" not in str(row)
    assert "hush" not in str(row)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("500 Broken\r\n", "answers 500"),
        ("429 Slow down\r\nRetry-After: 1\r\n", "answers 429"),
        ("", "disconnected"),
        ("silent", "no answer within 1 seconds"),
    ],
)
async def test_what_may_pass_is_sent_again_with_the_same_key(
    bench: Bench, site: Site, answer: str, text: str
) -> None:
    site.answers = [answer]
    bodies = await bench.publish(3)
    await bench.put(dest_uri=site.url, dest_timeout=1)
    await bench.until(lambda row: row["message_count"] == 3)
    assert [asked.body for asked in site.asked] == [bodies[0], *bodies], "in their order"
    first, again = site.asked[0].headers, site.asked[1].headers
    assert first["idempotency-key"] == again["idempotency-key"]
    assert "x-shovel-redelivered" not in first
    assert again["x-shovel-redelivered"] == "true"
    row = await bench.until(lambda row: row["state"] == "running")
    reasons = [event["reason"] for event in row["history"] if event["state"] == "blocked"]
    assert any(text in reason for reason in reasons), reasons
    assert row["counts"]["refused"] == 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("404 Not Found\r\n", "answers 404"),
        (
            "302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\n",
            "answers 302, a redirect, which is not followed",
        ),
    ],
)
async def test_what_is_refused_is_held_and_nothing_is_lost(
    bench: Bench, site: Site, answer: str, text: str
) -> None:
    site.answers = [answer] * 2
    bodies = await bench.publish(2)
    await bench.put(dest_uri=site.url)
    row = await bench.until(lambda row: row["state"] == "blocked")
    assert text in row["reason"]
    row = await bench.until(lambda row: row["message_count"] == 2)
    assert row["counts"]["refused"] == 2
    assert [asked.body for asked in site.asked] == [bodies[0]] * 3 + [bodies[1]]


async def test_what_is_refused_may_be_dropped_or_dead_lettered(bench: Bench, site: Site) -> None:
    letters = f"{bench.queue}-dead"
    await bench.declare(letters)
    site.answers = ["410 Gone\r\n"]
    bodies = await bench.publish(2)
    await bench.put(dest_uri=site.url, on_refused="drop")
    row = await bench.until(lambda row: row["message_count"] == 1)
    assert row["counts"]["dropped"] == 1
    site.answers = ["410 Gone\r\n"]
    await bench.put(dest_uri=site.url, on_refused="dead-letter", dead_letter_queue=letters)
    await bench.publish(2)
    row = await bench.until(lambda row: row["message_count"] == 2)
    assert row["counts"]["dead_lettered"] == 1
    (letter,) = await taken(bench.here, letters, 1)
    assert letter.body == bodies[0]


async def test_several_requests_run_at_once_where_that_is_asked_for(
    bench: Bench, site: Site
) -> None:
    site.is_open.clear()
    await bench.publish(20)
    await bench.put(dest_uri=site.url, dest_concurrency=4)

    async def four() -> bool:
        return site.at_once == 4

    await until(four)
    site.is_open.set()
    await bench.until(lambda row: row["message_count"] == 20)
    assert site.most_at_once == 4
    assert len({asked.headers["idempotency-key"] for asked in site.asked}) == 20


async def test_it_ends_when_so_many_are_sent(bench: Bench, site: Site) -> None:
    await bench.publish(10)
    await bench.put(dest_uri=site.url, src_delete_after=4)
    await bench.until_gone()
    assert len(site.asked) == 4
    assert not any(one.redelivered for one in await taken(bench.here, bench.queue, 6))


async def test_a_message_may_name_its_path_where_the_uri_has_none(bench: Bench, site: Site) -> None:
    for path in ("/a/b?c=1", "no path", "/line\r\nbreak"):
        await bench.publish(1, headers={"uri_path": path})
    await bench.put(dest_uri=site.url)
    await bench.until(lambda row: row["message_count"] == 3)
    targets = [asked.target.split()[1] for asked in site.asked]
    assert targets == ["/a/b?c=1", "/", "/"]


@pytest.mark.parametrize(
    "uri", ["http://169.254.169.254/latest/", "http://[::ffff:a9fe:a9fe]/", "http://0.0.0.0/"]
)
async def test_it_sends_nothing_to_addresses_that_are_denied(bench: Bench, uri: str) -> None:
    await bench.publish(1)
    await bench.put(dest_uri=uri)
    row = await bench.until_state("error")
    assert "denied" in row["reason"]


async def test_a_server_that_is_away_is_waited_for(bench: Bench) -> None:
    await bench.publish(1)
    await bench.put(dest_uri="http://127.0.0.1:1/")
    row = await bench.until_state("blocked")
    assert "http://127.0.0.1:1/" in row["reason"]
    assert row["pending"] == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7), ("999999999999", 300), ("", 0), ("soon", 0), ("-5", 0), ("١", 0)],
)
def test_it_reads_when_to_try_again(text: str, seconds: float) -> None:
    assert retry_after(text) == seconds


def test_it_reads_a_date_of_when_to_try_again() -> None:
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    assert 50 < retry_after(at) <= 100
    assert retry_after("Mon, 01 Jan 2001 00:00:00 GMT") == 0
