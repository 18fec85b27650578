"""The forms that declare queues and exchanges offer every argument, and the pages explain them."""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from broker.schema.arguments import BY_OWNER
from frontend.arguments import GROUPS, amount, given, meaning
from frontend.asking import FormError
from tests.amqp.bad_values import TAKES_ANYTHING
from tests.appliance import Appliance
from tests.web.conftest import Watch

# Set otherwise, other names of the same, or without a meaning here.
ELSEWHERE = {
    "x-queue-type",
    "x-hash-on",
    "x-alternate-exchange",
    "x-stream-filter-size-bytes",
    *TAKES_ANYTHING["queue"],
}


@pytest.mark.parametrize("owner", GROUPS)
def test_a_form_has_every_argument(owner: str) -> None:
    offered = {name for group in GROUPS[owner] for name in group.names}
    known = {row.name for row in BY_OWNER[owner].values() if row.built}
    assert offered == known - ELSEWHERE


def test_it_reads_numbers_words_and_flags() -> None:
    fields = {
        "x-max-length": "10 000",
        "x-delivery-limit": "-1",
        "x-overflow": "drop-head",
        "x-single-active-consumer": "true",
        "x-expires": "",
        "arguments": '{"x-custom": [1]}',
    }
    assert given("queue", fields) == {
        "x-custom": [1],
        "x-max-length": 10_000,
        "x-delivery-limit": -1,
        "x-overflow": "drop-head",
        "x-single-active-consumer": True,
    }


@pytest.mark.parametrize("text", ["x", "1.5", "1e3", "٣", "9" * 30, "--1"])
def test_it_refuses_what_is_no_number(text: str) -> None:
    with pytest.raises(FormError, match="x-max-length must be a whole number"):
        given("queue", {"x-max-length": text})


def test_it_says_of_an_unknown_argument_that_it_does_nothing() -> None:
    assert meaning("x-colour") == "not known here: kept, shown and ignored"


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("x-message-ttl", 90_000, "90,000 ms (90 s)"),
        ("x-expires", 5, "5 ms"),
        ("x-max-length-bytes", 1 << 20, "1,048,576 bytes (1 MiB)"),
        ("x-max-length", 0, "0 messages"),
        ("x-custom", 10_000, "10,000"),
    ],
)
def test_it_says_numbers_with_their_units(name: str, number: int, text: str) -> None:
    assert amount(name, number) == text


@pytest.fixture
def guest(shared_leveret: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60
    ) as client:
        yield client


def name_of(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def test_it_declares_a_queue_and_explains_it(page: Page, channel: BlockingChannel) -> None:
    name = name_of("explained")
    page.goto("/queues")
    page.click("text=New queue")
    page.fill("#queue-name", name)
    for heading in ("Length", "Confirms", "Dead letters"):
        page.locator("#create-queue summary", has_text=heading).first.click()
    page.fill("#queue-x-max-length", "1000")
    page.fill("#queue-x-dead-letter-exchange", "amq.fanout")
    page.select_option("#queue-x-confirm-on", "ack")
    page.click("text=Create queue")
    expect(page.locator("h1 .name")).to_have_text(name)
    channel.queue_declare(
        name,
        durable=True,
        arguments={
            "x-max-length": 1000,
            "x-dead-letter-exchange": "amq.fanout",
            "x-confirm-on": "ack",
        },
    )
    page.click("nav.tabs >> text=Settings")
    expect(page.locator("tr", has_text="x-max-length")).to_contain_text("1,000 messages")
    expect(page.locator("tr", has_text="x-confirm-on")).to_contain_text(meaning("x-confirm-on"))
    channel.queue_delete(name)


def test_it_offers_a_stream_what_a_stream_has(page: Page, guest: httpx.Client) -> None:
    name = name_of("log")
    page.goto("/queues")
    page.click("text=New queue")
    page.fill("#queue-name", name)
    expect(page.locator("#queue-x-max-age")).to_be_disabled()
    page.select_option("#queue-type", "stream")
    expect(page.locator("#create-queue details", has_text="Dead letters")).to_be_hidden()
    page.locator("#create-queue summary", has_text="Stream").click()
    page.fill("#queue-x-max-age", "7D")
    page.click("text=Create queue")
    expect(page.locator("h1 .name")).to_have_text(name)
    row = guest.get(f"/api/queues/%2F/{name}").json()
    assert (row["type"], row["arguments"]["x-max-age"]) == ("stream", "7D")
    guest.delete(f"/api/queues/%2F/{name}")


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_it_offers_nothing_that_a_type_refuses(page: Page, kind: str) -> None:
    page.goto("/queues")
    page.click("[data-open=create-queue]")
    expect(page.locator("#queue-durability")).to_be_visible()
    page.select_option("#queue-durability", "transient")
    page.check("#create-queue [name=auto_delete]")
    page.select_option("#queue-type", kind)
    expect(page.locator("#queue-durability")).to_be_hidden()
    expect(page.locator("#create-queue [name=auto_delete]")).to_be_hidden()
    name = f"form-{uuid.uuid4().hex[:8]}"
    page.fill("#queue-name", name)
    page.click("#create-queue button[type=submit]")
    expect(page.locator("h1")).to_contain_text(name)


def test_an_exchange_that_delays_has_a_type_to_route_by(page: Page) -> None:
    page.goto("/exchanges")
    page.click("[data-open=create-exchange]")
    page.select_option("#exchange-type", "x-delayed-message")
    page.fill("#exchange-name", name := f"form-{uuid.uuid4().hex[:8]}")
    page.click("#create-exchange button[type=submit]")
    expect(page.locator("h1")).to_contain_text(name)


@pytest.mark.parametrize(
    ("type_", "fields", "wanted"),
    [
        ("x-consistent-hash", {"hash-header": "customer"}, {"hash-header": "customer"}),
        ("x-delayed-message", {"x-delayed-type": "fanout"}, {"x-delayed-type": "fanout"}),
        ("x-random", {"alternate-exchange": "amq.fanout"}, {"alternate-exchange": "amq.fanout"}),
        ("topic", {"x-message-deduplication": "true"}, {"x-message-deduplication": True}),
    ],
)
def test_it_declares_an_exchange(
    page: Page, guest: httpx.Client, type_: str, fields: dict[str, str], wanted: dict[str, Any]
) -> None:
    name = name_of("declared")
    page.goto("/exchanges")
    page.click("text=New exchange")
    page.fill("#exchange-name", name)
    page.select_option("#exchange-type", type_)
    for field, value in fields.items():
        place = page.locator(f"#exchange-{field}")
        group = page.locator("#create-exchange details:visible", has=place)
        group.locator("summary").click()
        if place.evaluate("element => element.tagName") == "SELECT":
            place.select_option(value)
        else:
            place.fill(value)
    page.click("text=Create exchange")
    expect(page.locator("h1 .name").first).to_have_text(name)
    row = guest.get(f"/api/exchanges/%2F/{name}").json()
    assert row["arguments"] == wanted
    guest.delete(f"/api/exchanges/%2F/{name}")


def test_it_keeps_what_was_typed_when_it_is_refused(page: Page, watch: Watch) -> None:
    watch.allow(400)
    page.goto("/queues")
    page.click("text=New queue")
    page.fill("#queue-name", name_of("refused"))
    page.locator("#create-queue summary", has_text="Dead letters").click()
    page.fill("#queue-x-dead-letter-routing-key", "alone")
    page.click("text=Create queue")
    expect(page.locator("#create-queue").get_by_role("alert")).to_contain_text("no_dlx")
    expect(page.locator("#queue-x-dead-letter-routing-key")).to_have_value("alone")
