"""What people do with keys and mouse: quickly, twice, and ending elsewhere than they began."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, Request, Route, expect

from tests.web.test_console import connect


def test_a_form_that_is_sent_twice_acts_once(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number)
    target = f"web.target.{uuid.uuid4().hex[:8]}"
    channel.queue_declare(target, durable=True)
    posts: list[Request] = []
    held: list[Route] = []
    page.on("request", lambda request: posts.append(request) if request.method == "POST" else None)
    page.goto(f"/queues/%2F/{queue}/move")
    page.route("**/move", lambda route: held.append(route))
    page.check("input[value=copy]")
    page.fill("#target", target)
    button = page.locator("button:has-text('Start')")
    box: Any = button.bounding_box()
    page.mouse.click(box["x"] + 10, box["y"] + 8)
    while not held:
        page.wait_for_timeout(20)  # lets Playwright hand over the request
    page.mouse.click(box["x"] + 10, box["y"] + 8)
    for route in held:
        route.continue_()
    expect(page.locator("#toasts")).to_contain_text("has started")
    assert len(posts) == 1
    expect(page.locator("#transfers tbody tr")).to_have_count(1)
    page.unroute("**/move")
    # The page that came is a new one, and its form acts again.
    page.fill("#target", target)
    button.click()
    expect(page.locator("#transfers tbody tr")).to_have_count(2)
    channel.queue_delete(target)


def test_enter_in_the_palette_opens_what_was_typed_and_not_what_was_listed_before(
    page: Page, queue: str
) -> None:
    page.goto("/reports")
    page.keyboard.press("Control+k")
    results = page.locator("#palette-results [role=option]")
    expect(results.first).to_contain_text("Log")
    page.keyboard.type(queue)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/queues/%2F/{queue}")


NO_CLIPBOARD = 'Object.defineProperty(navigator, "clipboard", { value: undefined });'
"""As on a page without TLS of another machine."""
REFUSED = f"{NO_CLIPBOARD} document.execCommand = () => false;"


def test_copying_works_without_the_clipboard_of_secure_pages(page: Page) -> None:
    page.add_init_script(NO_CLIPBOARD)
    page.clock.install()
    page.goto("/connect")
    button = page.locator("button.copy").first
    for _ in range(2):
        button.click()
        expect(button).to_have_text("copied")
    page.clock.run_for(2_000)
    expect(button).to_have_text("copy")
    page.keyboard.press("Control+k")
    page.keyboard.press("Control+v")
    pasted = page.locator("#palette input").input_value()
    assert "import pika" in pasted


def test_a_button_does_not_say_that_it_copied_what_it_could_not(page: Page) -> None:
    page.add_init_script(REFUSED)
    page.goto("/connect")
    button = page.locator("button.copy").first
    button.click()
    expect(button).to_have_text("not copied")


@pytest.mark.parametrize("is_outwards", [True, False])
def test_a_selection_that_leaves_or_enters_a_dialog_does_not_close_it(
    page: Page, is_outwards: bool
) -> None:
    page.goto("/queues")
    page.click("text=New queue")
    page.fill("#queue-name", "some-name")
    box: Any = page.locator("#queue-name").bounding_box()
    places = [(box["x"] + 60, box["y"] + 10), (5, box["y"] + 10)]
    begin, end = places if is_outwards else reversed(places)
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()
    assert page.locator("#create-queue").evaluate("dialog => dialog.open")
    page.mouse.click(5, box["y"] + 10)
    expect(page.locator("#create-queue")).to_be_hidden()


def test_the_console_says_that_the_broker_cancelled_a_subscription(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    connect(page, f"/console?queue={queue}")
    page.click("#subscribe-form button:has-text('Subscribe')")
    expect(page.locator("#subscriptions li")).to_have_count(1)
    channel.queue_delete(queue)
    expect(page.locator("#subscriptions li")).to_have_count(0)
    said = f"The broker cancelled the subscription to {queue}"
    expect(page.locator("#console-error")).to_contain_text(said)
    expect(page.locator("#log .bad")).to_contain_text(said)
    expect(page.locator("#console-state")).to_have_text("open")
