"""Shovels in the browser: made from a form, tried, watched, paused, changed, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import Watch

PATIENCE_MS = 30_000


@pytest.fixture
def shovel(shared_leveret: Appliance) -> Iterator[str]:
    """A name of the test's own; the shovel is removed in the end."""
    name = f"web-{uuid.uuid4().hex[:8]}"
    yield name
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        api.delete(f"/api/parameters/shovel/%2F/{name}")


def test_it_makes_tries_watches_and_deletes_a_shovel(
    page: Page, shovel: str, channel: BlockingChannel, queue: str
) -> None:
    for number in range(5):
        channel.basic_publish("", queue, b"%d" % number)
    page.goto("/shovels")
    page.click("text=New shovel")
    page.fill("#shovel-name", shovel)
    page.fill("#key-src-uri", "amqp://")
    page.fill("#key-src-queue", queue)
    page.fill("#key-dest-uri", "amqp://guest:s3cret-word@127.0.0.1:1")
    page.fill("#key-dest-queue", f"{queue}-to")
    page.click("text=Test connection")
    steps = page.locator("#steps")
    expect(steps).to_contain_text(f"queue {queue} is there".replace(queue, f"'{queue}'"))
    expect(steps).to_contain_text("Connection refused")
    expect(page.locator("#key-src-queue")).to_have_value(queue)
    page.click("text=Save and start")
    state = page.locator("#shovel-state")
    expect(state).to_contain_text("Connection refused", timeout=PATIENCE_MS)
    expect(page.locator("#key-dest-uri")).to_have_value("amqp://guest:***@127.0.0.1:1")
    assert "s3cret-word" not in page.content()
    page.fill("#key-dest-uri", "amqp://")
    page.click("text=Save changes")
    expect(state).to_contain_text("running", timeout=PATIENCE_MS)
    moved = state.locator(".tile", has_text="Moved").locator(".tile-number")
    expect(moved).to_have_text("5", timeout=PATIENCE_MS)
    page.click("#shovel-state >> text=Pause")
    expect(state).to_contain_text("paused", timeout=PATIENCE_MS)
    page.goto("/shovels")
    row = page.locator("#shovels tr", has_text=shovel)
    expect(row).to_contain_text("paused")
    row.locator("a").click()
    page.click("#shovel-state >> text=Resume")
    expect(state).to_contain_text("running", timeout=PATIENCE_MS)
    page.click("button:has-text('Delete…')")
    page.click("#delete button:has-text('Delete shovel')")
    expect(page.locator("#toasts")).to_contain_text("is removed")
    expect(page.locator("#shovels")).not_to_contain_text(shovel)
    channel.queue_delete(f"{queue}-to")


def test_it_says_what_cannot_be(page: Page, shovel: str, watch: Watch) -> None:
    watch.allow(400)
    page.goto("/shovel")
    page.fill("#shovel-name", shovel)
    page.fill("#key-src-uri", "amqp://")
    page.fill("#key-dest-uri", "gopher://x")
    page.click("text=Save and start")
    alert = page.locator("[role=alert]")
    expect(alert).to_contain_text("Must specify 'src-exchange' or 'src-queue'")
    page.fill("#key-src-queue", "q")
    page.fill("#key-src-prefetch-count", "many")
    page.click("text=Save and start")
    expect(alert).to_contain_text("src-prefetch-count must be a whole number.")
    page.fill("#key-src-prefetch-count", "10")
    page.click("text=Save and start")
    expect(alert).to_contain_text("the scheme is amqp, amqps, http or https, not 'gopher'")
    expect(page.locator("#shovel-name")).to_have_value(shovel)
