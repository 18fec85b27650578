"""Tables inside the page of an object are paged, sorted and filtered as the lists are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance

PAGE = 100
MANY = 130


@pytest.fixture
def other(shared_leveret: Appliance) -> Iterator[pika.BlockingConnection]:
    """A connection beside the channel's."""
    parameters = pika.URLParameters(shared_leveret.amqp_url)
    with pika.BlockingConnection(parameters) as connection:
        yield connection


def test_consumers_of_a_queue_come_in_pages(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    for number in range(MANY):
        channel.basic_consume(queue, lambda *_: None, consumer_tag=f"worker-{number:03}")
    page.goto(f"/queues/%2F/{queue}/consumers?sort=consumer_tag")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(PAGE)
    expect(page.locator(".table-foot")).to_contain_text(f"1–{PAGE} of {MANY}")
    page.click('#table a[rel="next"]')
    expect(rows).to_have_count(MANY - PAGE)
    expect(rows.first).to_contain_text("worker-100")
    rows.nth(1).get_by_role("button", name="Cancel").click()
    expect(page.locator("#toasts")).to_contain_text("The consumer is cancelled.")
    expect(rows).to_have_count(MANY - PAGE - 1)
    expect(page.locator("#table")).not_to_contain_text("worker-101")
    page.fill('input[name="q"]', "worker-00")
    expect(rows).to_have_count(10)
    page.fill('input[name="q"]', "no such worker")
    page.click("#table >> text=Show all")
    expect(rows).to_have_count(PAGE)
    page.goto(f"/queues/%2F/{queue}")
    expect(page.locator("section", has_text="Consumers").locator("tr")).to_have_count(8)
    for tag in list(channel.consumer_tags):
        channel.basic_cancel(tag)


def test_bindings_come_in_pages_on_both_ends(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    mark = uuid.uuid4().hex[:8]
    for name in (f"{mark}.to", f"{mark}.from"):
        channel.exchange_declare(name, "topic")
    for number in range(MANY):
        channel.queue_bind(queue, f"{mark}.to", f"key.{number:03}")
        channel.exchange_bind(f"{mark}.to", f"{mark}.from", f"key.{number:03}")
    page.goto(f"/queues/%2F/{queue}/bindings?sort=routing_key&page=2")
    rows = page.locator("#table tbody tr")
    # The default exchange's is one more.
    expect(rows).to_have_count(MANY + 1 - PAGE)
    page.click("#table button:has-text('Unbind') >> nth=0")
    expect(page.locator("#toasts")).to_contain_text("The binding is gone.")
    expect(rows).to_have_count(MANY - PAGE)

    page.goto(f"/exchanges/%2F/{mark}.to?sort=routing_key")
    incoming = page.locator("#incoming-table tbody tr")
    expect(rows).to_have_count(PAGE)
    expect(incoming).to_have_count(PAGE)
    page.click('#incoming-table a[rel="next"]')
    expect(incoming).to_have_count(MANY - PAGE)
    expect(rows).to_have_count(PAGE)
    expect(rows.first).to_contain_text("key.000")
    page.fill('input[name="incoming-q"]', "key.12")
    expect(incoming).to_have_count(10)
    expect(rows).to_have_count(PAGE)
    page.click("#incoming-table button:has-text('Unbind') >> nth=0")
    expect(page.locator("#toasts")).to_contain_text("The binding is gone.")
    expect(page.locator("main .sentence")).to_contain_text(f"through {MANY - 1} bindings")
    for name in (f"{mark}.to", f"{mark}.from"):
        channel.exchange_delete(name)


def test_channels_of_a_connection_come_in_pages(page: Page, other: pika.BlockingConnection) -> None:
    for _ in range(MANY):
        other.channel()
    page.goto("/connections?sort=-channels")
    page.click("#table tbody th a >> nth=0")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(PAGE)
    page.click('#table a[rel="next"]')
    expect(rows).to_have_count(MANY - PAGE)
    field = page.get_by_label(f"Prefetch of channel {MANY}")
    field.fill("17")
    field.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("The prefetch is changed.")
    expect(page.get_by_label(f"Prefetch of channel {MANY}")).to_have_value("17")
    expect(page.get_by_label(f"Prefetch of channel {MANY - 1}")).to_have_value("0")


def test_a_binding_has_no_form_of_its_own_and_few_bytes(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    for number in range(3):
        channel.queue_bind(queue, "amq.topic", f"{queue}.{number}")
    page.goto(f"/queues/%2F/{queue}/bindings?sort=-source")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(4)
    assert page.locator("#table form").count() == 1
    assert page.locator("#table tbody :is(form, input)").count() == 0
    # As much as a row needs, with the names of queue and key six times.
    assert len(rows.first.inner_html()) < 500 + 6 * len(queue)
