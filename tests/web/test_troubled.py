"""An appliance with something wrong: the pages say what, and fit a phone while they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Browser, Page, expect

from broker.settings.bounds import FIXED
from tests.appliance import Appliance
from tests.web.conftest import NARROW, WIDE

STREAM = {"x-queue-type": "stream"}


def channel_of(leveret: Appliance) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(leveret.amqp_url)).channel()
    channel.basic_qos(prefetch_count=1)
    channel.confirm_delivery()
    return channel


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A segment with a wrong byte, a stream that keeps one place, and a reader that acks
    nothing."""
    leveret = Appliance(
        "serve", tmp_path_factory.mktemp("troubled"), stuck_after=1, stream_offsets_max=1
    ).start()
    channel = channel_of(leveret)
    channel.queue_declare("damaged", durable=True)
    for _ in range(3):
        channel.basic_publish("", "damaged", b"spoil me", pika.BasicProperties(delivery_mode=2))
    channel.connection.close()
    leveret.stop()
    (segment,) = leveret.data_dir.glob("vhosts/*/queues/*/msgs.*")
    segment.write_bytes(segment.read_bytes().replace(b"spoil me", b"spoilt m", 1))
    leveret.start()
    channel = channel_of(leveret)
    channel.queue_declare("log", durable=True, arguments=STREAM)
    channel.basic_publish("", "log", b"x")
    for tag in ("first", "second"):
        reader = channel_of(leveret)
        asked = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}
        consumed = reader.consume("log", consumer_tag=tag, arguments=asked)
        method, _, _ = next(consumed)
        assert method is not None
        reader.basic_ack(method.delivery_tag)
        reader.connection.close()
    channel.basic_consume("log", lambda *_: None, arguments={"x-stream-offset": "first"})
    yield leveret
    leveret.close()


@pytest.fixture
def page(browser: Browser, troubled: Appliance) -> Iterator[Page]:
    context = browser.new_context(base_url=troubled.http_url)
    page = context.new_page()
    page.goto("/login")
    page.fill("#username", "guest")
    page.fill("#password", "guest")
    page.click("button[type=submit]")
    page.wait_for_url(f"{troubled.http_url}/")
    yield page
    context.close()


def is_not_too_wide(page: Page) -> None:
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        too_wide: Any = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert too_wide <= 0, f"{page.url} is {too_wide} px too wide at {viewport['width']} px"


def test_the_node_says_what_could_not_be_read(page: Page) -> None:
    page.goto("/node")
    damage = page.locator("#damage")
    expect(damage).to_contain_text("1 stretch of bytes could not be read")
    expect(damage.locator("tbody th")).to_have_text("damaged")
    is_not_too_wide(page)


@pytest.mark.parametrize("width", [1440, 1280, 1024, 768, 375])
def test_no_name_of_a_setting_runs_into_its_value(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/node")
    expect(page.locator(".table.settings tbody th").first).to_be_visible()
    cut = """rows => rows.filter(row => row.scrollWidth > row.clientWidth)
        .map(row => row.textContent)"""
    assert page.locator(".table.settings tbody th").evaluate_all(cut) == []


def test_the_node_shows_the_limits_that_cannot_be_set(page: Page) -> None:
    page.goto("/node")
    rows = page.locator("#fixed tbody tr")
    expect(rows).to_have_count(len(FIXED))
    for place, fixed in enumerate(FIXED):
        expect(rows.nth(place)).to_contain_text(f"{fixed.value:,}")
        expect(rows.nth(place)).to_contain_text(fixed.what)


def test_a_stream_says_that_it_forgot_a_place(page: Page) -> None:
    page.goto("/queues/%2F/log/consumers")
    expect(page.locator(".notice")).to_contain_text("1 forgotten")
    is_not_too_wide(page)


def test_a_stream_whose_reader_is_stuck_does_not_say_that_all_is_well(page: Page) -> None:
    meaning = page.locator("[data-trouble-meaning]")
    for _ in range(30):
        page.goto("/queues/%2F/log")
        expect(meaning).not_to_be_empty()
        if "a reader has acknowledged nothing" in meaning.inner_text():
            break
    expect(meaning).to_contain_text("a reader has acknowledged nothing")
