"""Forty names that someone will choose one day: shown as text, linked, opened, acted on."""

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from frontend import addresses, figures

MARK = "hostile"
NAMES = [
    f"{MARK} {name}"
    for name in (
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>",
        "</script><script>alert(1)</script>",
        "</title><svg onload=alert(1)>",
        "<!--",
        "{{ 7*7 }}",
        "{% debug %}",
        "${7*7}",
        '"onmouseover="alert(1)',
        "'quoted'",
        "`ticked`",
        "&lt;&amp;",
        "a/b",
        "a%2Fb",
        "%",
        "%00",
        "100%",
        "?query=1",
        "#fragment",
        "a;b",
        "a+b c",
        "a&b=c",
        "\\backslash\\",
        "..",
        "/../../etc/passwd",
        "javascript:alert(1)",
        "=cmd|' /C calc'!A0",
        "line\u2028separator",
        "tab\there",
        "\x01control\x7f",
        "\u202eexe.gpj",
        "\u2066isolated\u2069",
        "zero\u200bwidth",
        "ünïcode",
        "日本語キュー",
        "עברית",
        "emoji \U0001f407",
        "x" * 240,
        "trailing space ",
        "__proto__",
    )
] + ["..", "."]


@pytest.fixture
def hostile(channel: BlockingChannel) -> Iterator[list[str]]:
    for name in NAMES:
        channel.queue_declare(name, durable=False)
    yield NAMES
    for name in NAMES:
        channel.queue_delete(name)


def shown(name: str) -> str:
    return "".join(part for part, _ in figures.name_parts(name))


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_it_shows_and_opens_every_name(page: Page, hostile: list[str]) -> None:
    page.goto(f"/queues?q={MARK}&sort=name")
    texts = page.locator("#table tbody th .name").all_text_contents()
    assert sorted(texts) == sorted(shown(name) for name in hostile if MARK in name)
    for name in hostile:
        page.goto(addresses.queue("/", name), wait_until="domcontentloaded")
        expect(page.locator("h1 .name")).to_have_text(squeezed(shown(name)))
        assert page.title() == squeezed(f"{shown(name)} · Leveret")
    assert page.evaluate("window.alerted") is None


def test_it_acts_on_names_one_cannot_type(page: Page, channel: BlockingChannel) -> None:
    name = "cannot\x01be typed\u202e"
    channel.queue_declare(name, durable=False)
    page.goto(addresses.queue("/", name))
    page.click("button:has-text('Delete…')")
    page.fill("#delete-confirm", "delete")
    page.click("#delete [data-acts]")
    expect(page.locator("#toasts")).to_contain_text("Deleted the queue")


def test_it_publishes_to_a_queue_called_dot_dot(page: Page, channel: BlockingChannel) -> None:
    channel.queue_declare("..", durable=False)
    page.goto("/queues?q=..&sort=name")
    page.click("#table tbody th a >> nth=0")
    page.click("nav.tabs >> text=Messages")
    page.fill("#payload", "dots")
    page.click("text=Publish message")
    expect(page.locator("#published")).to_contain_text("Published")
    assert channel.basic_get("..", auto_ack=True)[2] == b"dots"
    channel.queue_delete("..")
