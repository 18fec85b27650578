"""Addresses that pages show lead where they should, whatever the object and the host are called."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from html import unescape

import httpx
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.person import Person


@pytest.fixture
def dots(channel: BlockingChannel) -> Iterator[str]:
    """The name of a queue and of a delayed exchange that go by query."""
    channel.queue_declare("..", durable=True)
    arguments = {"x-delayed-type": "fanout"}
    channel.exchange_declare("..", "x-delayed-message", durable=True, arguments=arguments)
    yield ".."
    channel.exchange_delete("..")
    channel.queue_delete("..")


def test_ranges_keep_the_object_and_the_filters_of_the_address(person: Person, dots: str) -> None:
    page = person.page(f"/queue?vhost=%2F&name={dots}&q=%3Cb%3E&range=1h")
    links = [unescape(link) for link in re.findall(r'<a href="(\?[^"]*range=[^"]*)"', page.text)]
    assert len(links) == 7
    assert "?vhost=%2F&name=..&q=%3Cb%3E&range=6h" in links
    for link in links:
        assert "<h1>" in person.page(f"/queue{link}").text


def test_searching_delayed_messages_keeps_the_exchange(page: Page, dots: str) -> None:
    page.goto(f"/exchange?vhost=%2F&name={dots}")
    page.fill("#delayed-key", "eu")
    page.click("#delayed >> text=Search")
    expect(page.locator("h1")).to_contain_text(dots)
    expect(page.locator("#delayed-key")).to_have_value("eu")
    expect(page.locator("#delayed")).to_contain_text("None of these.")


def test_a_later_page_of_delayed_messages_is_of_the_same_exchange(dots: str) -> None:
    from frontend import delayed

    assert delayed._url("/", dots, {"delayed_key": "a&b", "after": ""}) == (
        "/exchange?vhost=%2F&name=..&delayed_key=a%26b#delayed"
    )


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        ("[::1]:15672", "@[::1]:"),
        ("[::1]", "@[::1]:"),
        ("127.0.0.1:15672", "@127.0.0.1:"),
        ("localhost", "@localhost:"),
    ],
)
def test_the_connect_page_shows_the_host_as_it_stands_in_addresses(
    person: Person, called: str, shown: str
) -> None:
    text = unescape(person.client.get("/connect", headers={"Host": called}).text)
    host = shown[1:-1]
    assert f"amqp://guest:••••{shown}" in text
    assert f'url: "ws://{host}:' in text
    assert f"on this port: ws://{called}/ws/amqp" in text
    assert f"http://{called}/api/" in text
    assert f'host="{host.strip("[]")}"' in text


def test_the_connect_page_over_tls_shows_addresses_over_tls(
    make_leveret: Callable[..., Appliance],
) -> None:
    leveret = make_leveret(trusted_proxies="127.0.0.1", allowed_hosts="broker.example")
    person = Person(leveret.http_url)
    headers = {"Host": "broker.example", "X-Forwarded-Proto": "https"}
    text = unescape(person.client.get("/connect", headers=headers).text)
    assert "wss://broker.example/ws/amqp" in text
    assert 'url: "wss://broker.example/ws/amqp"' in text
    assert "https://broker.example/api/" in text
    assert "ws://broker.example:" not in text


def test_the_palette_offers_the_pages_that_the_user_may_open(
    person: Person, shared_leveret: Appliance
) -> None:
    name = f"pages-{uuid.uuid4().hex[:8]}"
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        for tags in ("management", "policymaker", "monitoring", "administrator"):
            given = {"password": "secret", "tags": tags}
            api.put(f"/api/users/{name}", json=given).raise_for_status()
            own = Person(shared_leveret.http_url, name, "secret")
            found = own.get("/palette").json()["results"]
            refused = [row["url"] for row in found if own.get(row["url"]).status_code != 200]
            assert refused == [], tags
            own.client.close()
        api.delete(f"/api/users/{name}").raise_for_status()
    every = {row["url"] for row in person.get("/palette").json()["results"]}
    assert {"/federation", "/shovels", "/users", "/definitions", "/node", "/log"} <= every


def test_the_tile_of_the_queues_draws_the_queues(page: Page, queue: str) -> None:
    page.goto("/")
    drawn = page.locator("#tiles .tile", has_text="Queues").locator("[data-spark]")
    expect(drawn).to_have_attribute("data-spark", "queues")
    # As the number above it: there is a queue at least, and no test leaves a consumer.
    expect(drawn.locator("title")).to_have_text(re.compile("^Queues: from .* now [1-9]"))


def test_the_title_of_a_sparkline_says_what_is_now(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    page.goto(f"/queues/%2F/{queue}")
    title = page.locator('[data-spark="messages_ready"] title')
    expect(title).to_have_text("Ready: from 0 to 0, now 0")
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    expect(title).to_have_text("Ready: from 0 to 3, now 3")
