"""Acting on what runs, in the browser: consumers, prefetch, protection, tracing; and the log."""

from __future__ import annotations

import uuid

import pika
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance


def test_it_cancels_a_consumer(page: Page, channel: BlockingChannel, queue: str) -> None:
    channel.basic_consume(queue, lambda *_: None, consumer_tag="to be cancelled")
    page.goto(f"/queues/%2F/{queue}/consumers")
    row = page.locator("tr", has_text="to be cancelled")
    row.get_by_role("button", name="Cancel").click()
    expect(page.locator("#toasts")).to_contain_text("The consumer is cancelled.")


def test_it_changes_the_prefetch_of_a_channel(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, lambda *_: None)
    page.goto(f"/queues/%2F/{queue}/consumers")
    page.locator("tbody tr").first.locator("a").first.click()
    field = page.get_by_label("Prefetch of channel 1")
    expect(field).to_have_value("3")
    field.fill("17")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.locator("#toasts")).to_contain_text("The prefetch is changed.")
    expect(page.get_by_label("Prefetch of channel 1")).to_have_value("17")


def test_it_protects_a_vhost_and_traces_it(page: Page) -> None:
    page.goto("/vhosts/%2F")
    expect(page.get_by_role("button", name="Delete…")).to_be_visible()
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Protected from deletion").check()
    page.get_by_label("Tracing").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".chip", has_text="protected from deletion")).to_be_visible()
    expect(page.locator(".chip", has_text="tracing")).to_be_visible()
    expect(page.get_by_role("button", name="Delete…")).to_have_count(0)
    page.get_by_role("button", name="Edit…").click()
    page.get_by_label("Protected from deletion").uncheck()
    page.get_by_label("Tracing").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".chip", has_text="tracing")).to_have_count(0)


def test_the_log_goes_on_while_it_is_open(page: Page, shared_leveret: Appliance) -> None:
    page.goto("/log")
    expect(page.locator("#log-state")).to_have_text("live")
    expect(page.locator("#log-lines tr").first).to_be_visible()
    name = f"log-{uuid.uuid4().hex[:8]}"
    basic = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    assert page.request.put(f"/api/vhosts/{name}", headers=basic).ok
    wanted = pika.ConnectionParameters(shared_leveret.host, shared_leveret.amqp_port, name)
    pika.BlockingConnection(wanted).close()
    line = page.locator("#log-lines tr", has_text=name).first
    expect(line).to_be_visible()
    page.fill("#log-filter", "no line has this")
    expect(line).to_be_hidden()
    assert page.request.delete(f"/api/vhosts/{name}", headers=basic).ok
