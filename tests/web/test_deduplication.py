"""What the browser shows of deduplication."""

import uuid

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

ARGUMENTS = {"x-message-deduplication": True, "x-cache-size": 9}


@pytest.mark.parametrize("owner", ["queue", "exchange"])
def test_it_shows_how_many_duplicates_were_dropped(
    page: Page, channel: BlockingChannel, owner: str
) -> None:
    name = f"web.once.{uuid.uuid4().hex[:8]}"
    channel.queue_declare(name, arguments=ARGUMENTS if owner == "queue" else None)
    if owner == "exchange":
        channel.exchange_declare(name, "fanout", arguments=ARGUMENTS)
        channel.queue_bind(name, name)
    for id in ("a", "b", "a", "a"):
        properties = pika.BasicProperties(headers={"x-deduplication-header": id})
        channel.basic_publish(name if owner == "exchange" else "", name, b"x", properties)
    page.goto(f"/exchanges/%2F/{name}" if owner == "exchange" else f"/queues/%2F/{name}/settings")
    card = page.locator(".card", has_text="Duplicates")
    expect(card).to_contain_text("2 since the start")
    expect(card).to_contain_text("2 of at most 9")
    channel.queue_delete(name)
    if owner == "exchange":
        channel.exchange_delete(name)
