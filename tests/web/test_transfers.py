"""Moving and copying messages on a queue's page: previewed, started, watched, stopped."""

import uuid
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.web.conftest import Watch


@pytest.fixture
def target(channel: BlockingChannel) -> Iterator[str]:
    """A queue that takes four messages and refuses more."""
    name = f"web.target.{uuid.uuid4().hex[:8]}"
    arguments = {"x-max-length": 4, "x-overflow": "reject-publish"}
    channel.queue_declare(name, durable=True, arguments=arguments)
    yield name
    channel.queue_delete(name)


def test_it_previews_starts_shows_and_stops_a_move(
    page: Page, channel: BlockingChannel, queue: str, target: str
) -> None:
    for number in range(20):
        properties = pika.BasicProperties(headers={"kind": "<b>odd" if number % 2 else "even"})
        channel.basic_publish("", queue, b"%d" % number, properties)
    page.goto(f"/queues/%2F/{queue}/move")
    expect(page.locator(".tabs [aria-current=page]")).to_have_text("Move or copy")
    expect(page.locator("#transfers")).to_contain_text("None yet")
    page.fill("#transfer-header", "kind")
    page.fill("#transfer-value", "<b>odd")
    page.click("button:has-text('Preview')")
    expect(page.locator("#previewed")).to_have_text("10 of the first 20 messages match.")
    page.fill("#transfer-routing_key", "(")
    page.click("button:has-text('Preview')")
    expect(page.locator("#previewed")).to_contain_text("invalid regular expression")
    page.fill("#transfer-routing_key", "")
    page.fill("#target", target)
    page.click("button:has-text('Start')")
    rows = page.locator("#transfers tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("blocked")
    expect(rows).to_contain_text("is full and refuses more messages")
    expect(rows).to_contain_text("<b>odd")
    expect(rows.locator("svg.meter")).to_have_count(1)
    expect(rows.locator("td.number").nth(2)).to_have_text("4")
    rows.locator("button:has-text('Stop')").click()
    expect(rows).to_contain_text("stopped")
    expect(page.locator("#toasts")).to_contain_text("is stopped")
    rows.locator("button:has-text('Remove')").click()
    expect(page.locator("#transfers")).to_contain_text("None yet")


def test_a_wrong_target_is_told_and_the_form_keeps_what_was_typed(
    page: Page, watch: Watch, queue: str
) -> None:
    watch.allow(400)
    page.goto(f"/queues/%2F/{queue}/move")
    page.fill("#target", "no <i>such queue")
    page.fill("#transfer-limit", "7")
    page.click("button:has-text('Start')")
    expect(page.locator("[role=alert]")).to_contain_text("no queue 'no <i>such queue'")
    expect(page.locator("#target")).to_have_value("no <i>such queue")
    expect(page.locator("#transfer-limit")).to_have_value("7")


def test_a_replay_is_started_paused_and_resumed_on_the_page_of_a_stream(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    stream = f"web.stream.{uuid.uuid4().hex[:8]}"
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    for number in range(300):
        channel.basic_publish("", stream, b"%d" % number)
    page.goto(f"/queues/%2F/{stream}/move")
    expect(page.locator(".tabs [aria-current=page]")).to_have_text("Replay or copy")
    page.fill("#replay-target", queue)
    page.fill("#replay-from", "10")
    page.fill("#replay-to", "289")
    page.fill("#replay-rate", "1")
    page.click("button:has-text('Replay')")
    expect(page.locator("#toasts")).to_contain_text("replays 280 messages")
    row = page.locator("#transfers tbody tr")
    expect(row).to_contain_text("offsets 10 to 289")
    expect(row).to_contain_text("1 a second at most")
    row.locator("button:has-text('Pause')").click()
    expect(row).to_contain_text("paused")
    row.locator("button:has-text('Resume')").click()
    expect(row).not_to_contain_text("paused")
    row.locator("button:has-text('Stop')").click()
    expect(row).to_contain_text("stopped")
    channel.queue_delete(stream)


def test_a_wrong_range_of_a_replay_is_told_and_the_form_keeps_what_was_typed(
    page: Page, watch: Watch, channel: BlockingChannel, queue: str
) -> None:
    watch.allow(400)
    stream = f"web.stream.{uuid.uuid4().hex[:8]}"
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    page.goto(f"/queues/%2F/{stream}/move")
    page.fill("#replay-target", queue)
    page.fill("#replay-from", "<b>noon")
    page.click("button:has-text('Replay')")
    expect(page.locator("[role=alert]")).to_contain_text("'<b>noon' is no time")
    expect(page.locator("#replay-target")).to_have_value(queue)
    expect(page.locator("#replay-from")).to_have_value("<b>noon")
    expect(page.locator("#target")).to_have_value("")
    channel.queue_delete(stream)
