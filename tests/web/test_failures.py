"""A request of a part of a page that fails leaves the page as it is and says why."""

from __future__ import annotations

import uuid

import pika
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, Route, WebSocketRoute, expect

from tests.web.conftest import Watch

MARK = "window.isTheSamePage = true"


def expect_whole(page: Page) -> None:
    """The page is there once, and not another in a part of it."""
    assert page.evaluate("window.isTheSamePage")
    expect(page.locator(".frame")).to_have_count(1)
    expect(page.locator("main h1")).to_have_count(1)


def test_a_refused_click_changes_nothing_and_says_why_each_time(
    page: Page, watch: Watch, queue: str
) -> None:
    watch.allow(400)
    page.goto(f"/queues?q={queue}")
    page.evaluate(MARK)
    box = page.locator("#table tbody input[type=checkbox]")
    box.evaluate("box => { box.value = 'no key'; }")
    box.check()
    for count in (1, 2):
        page.click("button:has-text('Purge…')")
        expect(page.locator(".toast")).to_have_count(count)
    expect(page.locator(".toast").first).to_contain_text("The picked rows cannot be read.")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect_whole(page)


def test_a_click_that_gets_no_answer_says_so(page: Page, watch: Watch, queue: str) -> None:
    watch.allowed += ["Failed to fetch", "ERR_FAILED"]
    page.goto(f"/queues?q={queue}")
    page.evaluate(MARK)
    page.route("**/queues?q=nothing*", lambda route: route.abort())
    page.fill("#filter input[name=q]", "nothing")
    expect(page.locator("#toasts")).to_contain_text("No answer came from the server.")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    expect_whole(page)


def test_a_refused_filter_keeps_the_rows_and_the_address(
    page: Page, watch: Watch, queue: str
) -> None:
    watch.allow(503)

    def refuse(route: Route) -> None:
        text = "<main><h1>Away</h1><p class=sentence>The <b>broker</b> is away.</p></main>"
        route.fulfill(status=503, body=text, content_type="text/html")

    page.goto(f"/queues?q={queue}")
    page.evaluate(MARK)
    page.route("**/queues?q=nothing*", refuse)
    page.fill("#filter input[name=q]", "nothing")
    expect(page.locator(".toast")).to_have_text("The broker is away.")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    assert page.url.endswith(f"?q={queue}")
    expect_whole(page)


def test_a_poll_that_fails_again_and_again_says_so_once(
    page: Page, watch: Watch, channel: BlockingChannel, queue: str
) -> None:
    watch.allow(404)
    target = f"web.target.{uuid.uuid4().hex[:8]}"
    channel.queue_declare(target, durable=True)
    for number in range(100):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties())
    page.goto(f"/queues/%2F/{queue}/move")
    page.fill("#target", target)
    page.fill("#transfer-rate", "1")
    page.click("button:has-text('Start')")
    expect(page.locator("#transfers tbody tr")).to_have_count(1)
    page.evaluate(MARK)
    before = page.locator(".toast").count()
    channel.queue_delete(queue)
    for _ in range(3):
        with page.expect_response(lambda answer: answer.status == 404):
            pass
    expect(page.locator(".toast").last).to_contain_text("queue_not_found")
    expect(page.locator(".toast")).to_have_count(before + 1)
    expect(page.locator("#transfers tbody tr")).to_have_count(1)
    expect_whole(page)
    channel.queue_delete(target)


def test_a_shovel_that_has_removed_itself_is_said_to_be_gone(
    page: Page, watch: Watch, channel: BlockingChannel, queue: str
) -> None:
    watch.allow(404)
    name, target = (f"web.{uuid.uuid4().hex[:8]}" for _ in range(2))
    channel.queue_declare(target, durable=True)
    page.goto("/shovel")
    page.fill("#shovel-name", name)
    typed = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": queue, "dest-queue": target}
    for key, text in {**typed, "src-delete-after": "2"}.items():
        page.fill(f"[name='{key}']", text)
    page.click("button[value=save]")
    expect(page.locator("#shovel-state")).to_be_visible()
    page.evaluate(MARK)
    for _ in range(3):
        channel.basic_publish("", queue, b"one")
    expect(page.locator(".toast").last).to_contain_text("There is no such shovel.")
    expect(page.locator("#shovel-state")).to_be_visible()
    expect_whole(page)
    channel.queue_delete(target)


def test_the_list_of_problems_is_asked_for_again_after_a_failure(
    page: Page, watch: Watch, channel: BlockingChannel, queue: str
) -> None:
    watch.allow(503)
    refused: list[str] = []

    def relay(page_side: WebSocketRoute) -> None:
        """No push comes after the failure, which would ask for the list by itself."""
        server = page_side.connect_to_server()
        server.on_message(lambda push: None if refused else page_side.send(push))

    page.route_web_socket("**/live/", relay)
    page.goto("/problems")
    page.evaluate(MARK)
    expect(page.locator("#live-state")).to_have_text("live")

    def refuse_first(route: Route) -> None:
        if refused or route.request.headers.get("hx-request") != "true":
            route.continue_()
            return
        refused.append(route.request.url)
        route.fulfill(status=503, body="<main><p class=sentence>Away.</p></main>")

    page.route("**/problems*", refuse_first)
    channel.basic_publish("", queue, b"one")
    expect(page.locator("#toasts")).to_contain_text("Away.")
    expect(page.locator("#problem-list")).to_contain_text(queue)
    assert refused
    expect_whole(page)
