"""The metrics port under a flood, under a foreign name, and with a login."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from broker.server.metrics.scrapers import APART_S, KNOWN_FOR_S, PAGES_MIN, SLOW_S, Place, Places
from broker.settings.bounds import METRICS_CONNECTIONS_MAX as CONNECTIONS_MAX
from broker.settings.bounds import SCRAPERS_MAX
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
            one = socket.create_connection((watched.host, watched.metrics_port), 60)
            stack.enter_context(contextlib.closing(one))
            if number % 2:
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        answer = scrape(watched)
        assert answer.status_code == 200
        assert "rabbitmq_connections " in answer.text


def test_a_full_connection_limit_keeps_no_scraper_away(watched: Appliance) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            one = socket.create_connection((watched.host, watched.amqp_port), 60)
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


class Writer:
    def __init__(self) -> None:
        self.transport = self
        self.ended = False

    def abort(self) -> None:
        self.ended = True


class Port:
    """Places, and a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = 4) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.places = Places(most)
        self.ended: list[str] = []

    def take(self, address: str, *, is_answered: bool = True) -> Writer | None:
        writer = Writer()
        place: Place | None = self.places.take(address, writer)  # type: ignore[arg-type]
        if place is not None and is_answered:
            place.answer()
        return writer if place is not None else None

    def scrape(self, address: str, pages: int = PAGES_MIN, apart: float = APART_S) -> None:
        for _ in range(pages):
            self.places.scrapers.took_page(address)
            self.now += apart


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    return Port(monkeypatch)


def test_the_oldest_of_the_address_that_has_most_gives_way(port: Port) -> None:
    scraper = port.take("192.0.2.1", is_answered=False)
    made = [port.take("192.0.2.2", is_answered=False) for _ in range(20)]
    assert scraper is not None and not scraper.ended
    assert [one is not None and one.ended for one in made] == [True] * 17 + [False] * 3
    assert port.take("192.0.2.3") is not None
    assert not scraper.ended


def test_an_address_with_many_answers_gives_way_to_one_with_fewer(port: Port) -> None:
    made = [port.take("192.0.2.2") for _ in range(4)]
    assert port.take("192.0.2.2") is None, "it may not take its own place"
    assert port.take("192.0.2.1") is not None
    assert [one is not None and one.ended for one in made] == [True, False, False, False]


def test_a_known_scraper_finds_a_place_in_a_flood_from_many_addresses(port: Port) -> None:
    port.scrape("192.0.2.1")
    for number in range(4):
        assert port.take(f"198.51.100.{number}") is not None
    assert port.take("198.51.100.9") is None
    assert port.take("192.0.2.1") is not None
    assert port.take("192.0.2.1") is None, "one place is kept for it, not all"


@pytest.mark.parametrize(
    ("pages", "apart", "later"),
    [(PAGES_MIN - 1, APART_S, 0), (10, APART_S / 100, 0), (PAGES_MIN, APART_S, KNOWN_FOR_S)],
    ids=["too few", "at once", "long ago"],
)
def test_who_does_not_scrape_regularly_has_no_place_of_its_own(
    port: Port, pages: int, apart: float, later: float
) -> None:
    port.scrape("192.0.2.1", pages, apart)
    port.now += later
    for number in range(4):
        port.take(f"198.51.100.{number}")
    assert port.take("192.0.2.1") is None


def test_scrapers_that_came_first_stay_known(port: Port) -> None:
    port.scrape("192.0.2.1")
    for number in range(2 * SCRAPERS_MAX):
        port.scrape(f"198.51.100.{number}")
    known = [f"198.51.100.{number}" for number in range(2 * SCRAPERS_MAX)]
    assert port.places.scrapers.knows("192.0.2.1")
    assert sum(map(port.places.scrapers.knows, known)) == SCRAPERS_MAX - 1


def test_who_takes_its_answer_slowly_gives_way(port: Port) -> None:
    made = [port.take(f"198.51.100.{number}") for number in range(4)]
    port.now += SLOW_S + 1
    assert port.take("192.0.2.1") is not None
    assert [one is not None and one.ended for one in made] == [True, False, False, False]
