"""Where the segments of a stream are, on its page and the node's."""

import re
import uuid
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

LONG = 60_000
"""Uploads begin with the next second or two; a page shows them when it is loaded again."""

PAUSE = 200

ALL_BUT_THE_LAST = re.compile(r"([2-9]) segments, .*; \1 of them \(.*\) only there")
"""They are uploaded one by one."""


@pytest.fixture
def stream(channel: BlockingChannel) -> Iterator[str]:
    """A stream of which all but the last segment leave the disk."""
    name = f"web.stream.{uuid.uuid4().hex[:8]}"
    arguments = {
        "x-queue-type": "stream",
        "x-stream-tier": True,
        "x-stream-local-max-bytes": 0,
        "x-stream-max-segment-size-bytes": 4096,
    }
    channel.queue_declare(name, durable=True, arguments=arguments)
    for _ in range(12):
        channel.basic_publish("", name, bytes(1000), pika.BasicProperties(delivery_mode=2))
    yield name
    channel.queue_delete(name)


def test_a_stream_and_the_node_show_what_is_in_the_object_store(page: Page, stream: str) -> None:
    row = page.locator("dt:has-text('In the object store') + dd")
    for _ in range(LONG // PAUSE):
        page.goto(f"/queues/%2F/{stream}")
        if ALL_BUT_THE_LAST.search(row.inner_text()):
            break
        page.wait_for_timeout(PAUSE)
    expect(row).to_have_text(ALL_BUT_THE_LAST)
    page.goto("/node")
    store = page.locator("#tiers")
    expect(store).to_contain_text("objects/tiers")
    expect(store).to_contain_text("fine")
    expect(store).to_contain_text("requests")
