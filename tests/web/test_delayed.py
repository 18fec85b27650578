"""Delayed messages in the browser: seen, searched, cancelled after a question."""

import re
import uuid
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

HOUR_MS = 3_600_000


@pytest.fixture
def later(channel: BlockingChannel, queue: str) -> Iterator[str]:
    """A delayed exchange with three messages that wait for hours, and one for longer than any
    calendar lasts."""
    name = f"web.later.{uuid.uuid4().hex[:8]}"
    channel.exchange_declare(
        name, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_bind(queue, name)
    for hours, key in ((30, "order.<b>us"), (10, "order.eu"), (20, "bill.eu"), (10**11, "never")):
        properties = pika.BasicProperties(headers={"x-delay": hours * HOUR_MS})
        channel.basic_publish(name, key, b"x", properties)
    yield name
    channel.exchange_delete(name)


def test_it_shows_searches_and_cancels_delayed_messages(page: Page, later: str) -> None:
    page.goto(f"/exchanges/%2F/{later}")
    keys = page.locator("#delayed tbody th")
    expect(keys).to_have_text(["order.eu", "bill.eu", "order.<b>us", "never"])
    expect(page.locator("#delayed")).to_contain_text("4 wait")
    page.fill("#delayed-key", "eu")
    page.click("#delayed >> text=Search")
    expect(keys).to_have_text(["order.eu", "bill.eu"])
    due = page.locator("#delayed tbody time").nth(1).get_attribute("datetime")
    assert due is not None
    seconds = re.sub(r"(\.\d+)?(Z|\+00:00)$", "", due)
    page.fill("#due-from", seconds)
    page.click("#delayed >> text=Search")
    expect(keys).to_have_text(["bill.eu"])
    page.click("#delayed >> text=Cancel…")
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("bill.eu")
    dialog.locator("text=Keep it").click()
    expect(dialog).to_have_count(0)
    page.click("#delayed >> text=Cancel…")
    dialog.locator("button:has-text('Cancel message')").click()
    expect(page.locator("#toasts")).to_contain_text("The message is cancelled")
    expect(keys).to_have_text(["order.eu", "order.<b>us", "never"])
    expect(page.locator("#delayed")).to_contain_text("1 cancelled")


def test_a_plain_exchange_has_no_such_part(page: Page) -> None:
    page.goto("/exchanges/%2F/amq.topic")
    expect(page.locator("h1")).to_contain_text("amq.topic")
    expect(page.locator("#delayed")).to_have_count(0)
