"""Compressed answers: which are, which are not, and that they hold the same."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator

import httpx
import pytest
from django.http import HttpRequest, StreamingHttpResponse

from management.compression import Compression, accepts_gzip
from tests.api.conftest import VHOST, path

GZIP = {"Accept-Encoding": "gzip"}
PLAIN = {"Accept-Encoding": "identity"}


@pytest.fixture(scope="module", autouse=True)
def queues(clients: dict[str, httpx.Client]) -> None:
    for number in range(60):
        where = path("queues", VHOST, f"compressed.{number:02}")
        assert clients["administrator"].put(where, json={}).is_success


def test_a_list_is_compressed_for_who_accepts_it(api: httpx.Client) -> None:
    url = path("queues", VHOST)
    chosen = {"columns": "name,vhost,arguments,type,durable"}
    plain = api.get(url, params=chosen, headers=PLAIN)
    compressed = api.get(url, params=chosen, headers=GZIP)
    assert "Content-Encoding" not in plain.headers
    assert compressed.headers["Content-Encoding"] == "gzip"
    assert int(compressed.headers["Content-Length"]) < len(plain.content) / 3
    assert compressed.json() == plain.json()
    for answer in (plain, compressed):
        assert "Accept-Encoding" in answer.headers["Vary"]


def test_a_page_is_compressed(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/login", headers=GZIP)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "<form" in answer.text


def test_small_answers_stay_as_they_are(api: httpx.Client) -> None:
    assert "Content-Encoding" not in api.get("/api/whoami", headers=GZIP).headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_for_is_not_compressed(api: httpx.Client, site: str) -> None:
    headers = {**GZIP, "Sec-Fetch-Site": site}
    answer = api.get("/api/overview", headers=headers)
    assert "Content-Encoding" not in answer.headers
    assert "Sec-Fetch-Site" in answer.headers["Vary"]
    own = api.get("/api/overview", headers={**GZIP, "Sec-Fetch-Site": "same-origin"})
    assert own.headers["Content-Encoding"] == "gzip"


def test_the_same_answer_has_no_fixed_length(api: httpx.Client) -> None:
    lengths = {
        api.get("/api/openapi.json", headers=GZIP).headers["Content-Length"] for _ in range(12)
    }
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("identity", False),
        ("x-gzipped", False),
        ("", False),
    ],
)
def test_it_reads_what_a_client_accepts(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


def test_a_streamed_answer_is_one_gzip_file() -> None:
    chunks = [b"a" * 10, os.urandom(100_000), b"", b"b" * 200_000]

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def answer(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(body(), content_type="application/json")

    async def received() -> bytes:
        request = HttpRequest()
        request.META["HTTP_ACCEPT_ENCODING"] = "gzip"
        response = await Compression(answer)(request)
        assert response["Content-Encoding"] == "gzip"
        assert isinstance(response, StreamingHttpResponse)
        return b"".join([chunk async for chunk in aiter(response)])

    data = asyncio.run(received())
    assert data.count(b"\x1f\x8b\x08\x00") == 1
    assert gzip.decompress(data) == b"".join(chunks)


def test_events_are_not_compressed() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        yield b"data: x\n\n"

    async def answer(request: HttpRequest) -> StreamingHttpResponse:
        return StreamingHttpResponse(nothing(), content_type="text/event-stream")

    request = HttpRequest()
    request.META["HTTP_ACCEPT_ENCODING"] = "gzip"
    response = asyncio.run(Compression(answer)(request))
    assert "Content-Encoding" not in response
