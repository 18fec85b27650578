"""The metrics port under a flood, under a foreign name, and with a login."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import httpx
import pytest

from broker.server.metrics.scrapers import CONNECTIONS_MAX, Places
from tests.appliance import Appliance
from tests.conftest import Make

MONITOR = {"tags": "monitoring", "password": "a password"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    place = tmp_path_factory.mktemp("watched")
    appliance = Appliance("serve", place, connections_max=10, metrics_login="yes").start()
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=30) as api:
        api.put("/api/users/scraper", json=MONITOR).raise_for_status()
        api.put("/api/users/other", json={**MONITOR, "tags": "management"}).raise_for_status()
    yield appliance
    appliance.close()


def scrape(appliance: Appliance, user: str = "scraper", **headers: str) -> httpx.Response:
    url = f"http://{appliance.host}:{appliance.metrics_port}/metrics"
    auth = (user, MONITOR["password"]) if user else None
    return httpx.get(url, auth=auth, headers=headers, timeout=30)


def test_idle_connections_keep_no_scraper_away(watched: Appliance) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(3 * CONNECTIONS_MAX):
            one = socket.create_connection((watched.host, watched.metrics_port), 10)
            stack.enter_context(contextlib.closing(one))
            if number % 2:
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        answer = scrape(watched)
        assert answer.status_code == 200
        assert "rabbitmq_connections " in answer.text


def test_a_full_connection_limit_keeps_no_scraper_away(watched: Appliance) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            one = socket.create_connection((watched.host, watched.amqp_port), 10)
            stack.enter_context(contextlib.closing(one))
        assert scrape(watched).status_code == 200


def test_it_answers_to_its_own_names_only(watched: Appliance) -> None:
    assert scrape(watched, Host="rebound.example").status_code == 421
    assert scrape(watched, Host="localhost").status_code == 200


def test_a_login_is_asked_where_the_settings_say_so(watched: Appliance) -> None:
    answer = scrape(watched, "")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert "rabbitmq" not in answer.text
    assert scrape(watched, "other").status_code == 401
    assert scrape(watched, "nobody").status_code == 401
    url = f"http://{watched.host}:{watched.metrics_port}/metrics"
    for value in ("Basic", "Basic ====", "Bearer x", "Basic eA=="):
        headers = {"Authorization": value}
        assert httpx.get(url, headers=headers, timeout=30).status_code == 401


def test_without_the_setting_no_login_is_asked(make_broker: Make) -> None:
    assert scrape(make_broker(), "").status_code == 200


def test_the_web_port_has_the_same_pages_for_who_may_monitor(watched: Appliance) -> None:
    password = MONITOR["password"]
    with httpx.Client(base_url=watched.http_url, timeout=30) as web:
        assert web.get("/metrics").status_code == 401
        assert web.get("/metrics", auth=("other", password)).status_code == 401
        auth = ("scraper", password)
        for page in ("", "/per-object", "/memory-breakdown", "/detailed?family=vhost_status"):
            answer = web.get(f"/metrics{page}", auth=auth)
            assert answer.status_code == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "rabbitmq_" in answer.text
        assert web.get("/metrics/none", auth=auth).status_code == 404
        assert web.get("/metrics/detailed?queue=(", auth=auth).status_code == 400
        assert web.post("/metrics", auth=auth).is_error
        assert web.get("/metrics", auth=auth, headers={"Origin": "http://x.example"}).is_error


def test_the_oldest_of_whoever_has_most_gives_way() -> None:
    class Writer:
        def __init__(self) -> None:
            self.transport = self
            self.ended = False

        def abort(self) -> None:
            self.ended = True

    def writer() -> Writer:
        made.append(Writer())
        return made[-1]

    made: list[Writer] = []
    places = Places(4)
    scraper = places.take("192.0.2.1", writer())  # type: ignore[arg-type]
    for _ in range(20):
        assert places.take("192.0.2.2", writer()) is not None  # type: ignore[arg-type]
    assert not made[0].ended
    assert [one.ended for one in made[1:]] == [True] * 17 + [False] * 3
    assert scraper is not None
    assert places.take("192.0.2.3", writer()) is not None  # type: ignore[arg-type]
    assert not made[0].ended
