"""Host headers that are no host, from clients that the first check lets through."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.api.test_sessions import sign_in
from tests.appliance import Appliance

HOSTS = ["a b", "[::1", "localhost:abc", "broker.example,evil", "<x>", "x/y", "under_score", "-"]
FAR = {"X-Forwarded-For": "203.0.113.7"}


@pytest.fixture(scope="module")
def behind_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    place = tmp_path_factory.mktemp("proxied")
    appliance = Appliance(
        "serve",
        place,
        trusted_proxies="127.0.0.1",
        default_user="ada",
        default_password="a long password",
    )
    yield appliance.start()
    appliance.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_strange_host_is_answered_without_a_line_in_the_log(
    behind_a_proxy: Appliance, host: str
) -> None:
    before = len(behind_a_proxy.log().splitlines())
    headers = {**FAR, "Host": host}
    with httpx.Client(base_url=behind_a_proxy.http_url, headers=headers, timeout=30) as client:
        assert client.get("/login?next=/queues").status_code == 200
        assert client.post("/login").status_code == 403
        assert client.get("/").status_code == 302
        assert client.get("/api/overview").status_code == 401
    written = behind_a_proxy.log().splitlines()[before:]
    assert not [line for line in written if "info" not in line]


@pytest.mark.parametrize("host", HOSTS)
def test_pages_that_name_their_host_open_whatever_it_is(
    behind_a_proxy: Appliance, host: str
) -> None:
    headers = {**FAR, "Host": host}
    with httpx.Client(base_url=behind_a_proxy.http_url, headers=headers, timeout=30) as client:
        assert sign_in(client, "ada", "a long password").status_code == 302
        for page in ("/connect", "/api-docs", "/api/"):
            answer = client.get(page)
            assert answer.status_code in (200, 404), page
            assert "<x>" not in answer.text
