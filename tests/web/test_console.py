"""The console: the browser is an AMQP client through the web port."""

from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect


def connect(page: Page, path: str = "/console") -> None:
    page.goto(path)
    page.click("#connect-button")
    expect(page.locator("#console-state")).to_have_text("open")


def test_it_receives_what_others_publish_and_settles_it(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    connect(page, f"/console?queue={queue}")
    page.click("#subscribe-form button:has-text('Subscribe')")
    expect(page.locator("#subscriptions")).to_contain_text(queue)
    channel.basic_publish("", queue, "for the browser <b>ü</b>".encode())
    arrived = page.locator(".log-row.in")
    expect(arrived).to_contain_text("for the browser <b>ü</b>")
    arrived.locator("text=Requeue").click()
    expect(page.locator(".log-row.in")).to_have_count(2)
    again = page.locator(".log-row.in").last
    expect(again).to_contain_text("redelivered")
    again.locator("text=Ack").click()
    expect(again).to_contain_text("acknowledged")
    page.click("#subscriptions >> text=Cancel")
    expect(page.locator("#log")).to_contain_text("cancelled")
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_it_publishes_with_a_confirm(page: Page, channel: BlockingChannel, queue: str) -> None:
    connect(page)
    page.fill("#publish-key", queue)
    page.fill("#publish-body", "from the browser")
    page.click("#publish-form button")
    expect(page.locator(".log-row.out")).to_contain_text("confirmed in")
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    assert body == b"from the browser"
    assert properties is not None and properties.delivery_mode == 2


def test_it_follows_an_exchange_without_taking_from_others(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    channel.queue_bind(queue, "amq.topic", f"{queue}.#")
    connect(page)
    page.click("[data-source=exchange]")
    page.fill("#subscribe-exchange", "amq.topic")
    page.fill("#subscribe-key", f"{queue}.#")
    page.click("#subscribe-form button:has-text('Subscribe')")
    expect(page.locator("#subscriptions")).to_contain_text(queue)
    channel.basic_publish("amq.topic", f"{queue}.here", b"a copy")
    expect(page.locator(".log-row.in")).to_contain_text("a copy")
    assert channel.queue_declare(queue, passive=True).method.message_count == 1


def test_it_shows_what_the_broker_refuses(page: Page) -> None:
    connect(page, "/console?queue=there-is-no-such-queue")
    page.click("#subscribe-form button:has-text('Subscribe')")
    expect(page.locator("#console-error")).to_contain_text("NOT_FOUND")
    expect(page.locator("#console-state")).to_have_text("open")
