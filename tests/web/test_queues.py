"""Working with queues in the browser: create, publish, get, purge, delete, filter, pick many."""

import re
import uuid

from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.web.conftest import Watch, cell_of


def ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_it_creates_a_queue(page: Page, channel: BlockingChannel) -> None:
    name = f"made/here {uuid.uuid4().hex[:8]}"
    page.goto("/queues")
    page.click("text=New queue")
    page.fill("#queue-name", name)
    page.click("text=Create queue")
    expect(page.locator("h1 .name")).to_have_text(name)
    expect(page.locator("#toasts")).to_contain_text("The queue is there.")
    channel.queue_declare(name, durable=True, passive=True)
    channel.queue_delete(name)


def test_the_type_picked_holds_in_a_vhost_whose_default_is_another(page: Page) -> None:
    vhost = f"quorum-{uuid.uuid4().hex[:8]}"
    basic = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    made = {"default_queue_type": "quorum"}
    assert page.request.put(f"/api/vhosts/{vhost}", headers=basic, data=made).ok
    page.goto(f"/queues?vhost={vhost}")
    page.click("text=New queue")
    page.fill("#queue-name", "picked")
    page.select_option("#queue-type", "classic")
    page.click("text=Create queue")
    expect(page.locator("h1 .name")).to_have_text("picked")
    row = page.request.get(f"/api/queues/{vhost}/picked", headers=basic).json()
    assert row["type"] == "classic"
    assert page.request.delete(f"/api/vhosts/{vhost}", headers=basic).ok


def test_it_says_beside_the_form_what_was_refused(page: Page, watch: Watch) -> None:
    watch.allow(400)
    page.goto("/queues")
    page.click("text=New queue")
    page.fill("#queue-name", "refused")
    page.locator("#create-queue summary", has_text="Other arguments").click()
    page.fill("#queue-arguments", "no JSON")
    page.click("text=Create queue")
    # The dialog is open again, with the reason and what was typed.
    expect(page.locator("#create-queue").get_by_role("alert")).to_contain_text("are not JSON")
    expect(page.locator("#queue-name")).to_have_value("refused")


def test_it_shows_what_left_without_an_ack(page: Page, channel: BlockingChannel) -> None:
    name = f"leaving-{uuid.uuid4().hex[:8]}"
    channel.queue_declare(name, arguments={"x-max-length": 2})
    for _ in range(5):
        channel.basic_publish("", name, b"x")
    assert ready(channel, name) == 2
    page.goto(f"/queues/%2F/{name}")
    expect(page.locator("#left-otherwise")).to_contain_text("Dropped by a length limit")
    expect(page.locator("#left-otherwise dd").nth(1)).to_have_text("3")
    channel.queue_delete(name)


def test_it_says_for_how_long_publishers_wait_for_consumers(
    page: Page, channel: BlockingChannel
) -> None:
    queue = f"waited-{uuid.uuid4().hex[:8]}"
    channel.queue_declare(queue, arguments={"x-confirm-on": "ack"})
    # pika would wait for the confirm, which no consumer gives.
    channel._impl.basic_publish("", queue, b"x")
    channel.basic_consume(queue, lambda *_: None)
    channel.connection.process_data_events()
    page.goto(f"/queues/%2F/{queue}")
    card = page.locator("#unconfirmed")
    expect(card).to_contain_text(" ago")
    expect(card).to_contain_text("0 ready, 1 with consumers")
    assert "Publishers wait" in (page.text_content("#trouble-meanings") or "")
    page.click("#unconfirmed a[href^='/channels']")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Unconfirmed")
    channel.queue_delete(queue)


def test_it_publishes_and_gets(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues/%2F/{queue}/messages")
    page.fill("#payload", '{"order": 4711, "note": "<b>ünïcode</b>"}')
    page.fill("#content_type", "application/json")
    page.click("summary:has-text('Properties')")
    page.fill("#headers", '{"order-id": 4711}')
    page.click("text=Publish message")
    expect(page.locator("#published")).to_contain_text("Published")
    assert ready(channel, queue) == 1

    page.click("button:has-text('Show messages')")
    expect(page.locator("#got .payload")).to_contain_text('"order": 4711')
    expect(page.locator("#got")).to_contain_text("order-id")
    expect(page.locator("#got")).to_contain_text("still in the queue")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert ready(channel, queue) == 1

    page.check("input[value=take]")
    page.click("button:has-text('Show messages')")
    expect(page.locator("#got")).to_contain_text("taken out of the queue")
    expect(page.locator("#got")).not_to_contain_text("redelivered")
    assert ready(channel, queue) == 0

    page.click("button:has-text('Show messages')")
    expect(page.locator("#got")).to_contain_text("no ready message")


def test_it_shows_bytes_as_hexadecimal(page: Page, channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, bytes(range(200, 256)))
    page.goto(f"/queues/%2F/{queue}/messages")
    page.click("button:has-text('Show messages')")
    expect(page.locator("#got .payload")).to_contain_text("00000000  c8 c9 ca")


def test_it_purges_only_when_the_name_is_typed(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    for number in range(3):
        channel.basic_publish("", queue, str(number).encode())
    page.goto(f"/queues/%2F/{queue}")
    page.click("button:has-text('Purge…')")
    act = page.locator("#purge [data-acts]")
    expect(act).to_be_disabled()
    page.fill("#purge-confirm", queue[:-1])
    expect(act).to_be_disabled()
    page.fill("#purge-confirm", queue)
    act.click()
    expect(page.locator("#toasts")).to_contain_text("Purged 3 messages.")
    assert ready(channel, queue) == 0


def test_it_pauses_and_resumes(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues/%2F/{queue}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts")).to_contain_text("Paused: messages come in")
    expect(page.locator("h1 [data-trouble]")).to_have_text("paused")
    expect(page.locator("h1 [data-trouble]")).to_have_class("state warn")
    expect(page.locator("[data-trouble-meaning]")).to_contain_text("Deliveries are paused")
    channel.basic_publish("", queue, b"x")
    assert channel.basic_get(queue)[0] is None
    page.goto(f"/queues?q={queue}")
    expect(page.locator("#table [data-trouble]")).to_have_text("paused")

    page.goto(f"/queues/%2F/{queue}")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#toasts")).to_contain_text("Resumed: deliveries go on.")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator("h1 [data-trouble]")).not_to_have_text("paused")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"x"


def test_it_deletes(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues/%2F/{queue}")
    page.click("button:has-text('Delete…')")
    page.fill("#delete-confirm", queue)
    page.click("#delete [data-acts]")
    expect(page.locator("#toasts")).to_contain_text("Deleted the queue")
    page.goto(f"/queues?q={queue}")
    expect(page.locator("#table")).to_contain_text("Nothing matches this filter.")


def test_it_filters_as_one_types(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto("/queues")
    page.locator("[name=q]").press_sequentially(queue)
    expect(page.locator("#table tbody tr")).to_have_count(1)
    expect(page.locator("#table tbody tr")).to_contain_text(queue)
    expect(page).to_have_url(re.compile(f"/queues[?]q={queue}$"))
    channel.basic_publish("", queue, b"live after a swap")
    expect(cell_of(page, "messages_ready")).to_have_text("1")
    page.fill("[name=q]", "/^web[.](/")
    expect(page.locator("#table")).to_contain_text("The filter cannot be used.")


def test_it_deletes_the_picked_queues(page: Page, channel: BlockingChannel) -> None:
    mark = uuid.uuid4().hex[:8]
    for number in range(3):
        channel.queue_declare(f"{mark}.{number}", durable=True)
        for _ in range(number):
            channel.basic_publish("", f"{mark}.{number}", b"x")
    page.goto(f"/queues?q={mark}")
    page.check("[data-select-all]")
    expect(page.locator("[data-bulk-count]")).to_have_text("3 selected")
    page.click("[data-bulk] >> text=Delete…")
    dialog = page.locator("#picked")
    for number in range(3):
        expect(dialog).to_contain_text(f"{mark}.{number}")
    expect(dialog).to_contain_text("3 ready and 0 unacknowledged messages")
    acts = dialog.locator("[data-acts]")
    expect(acts).to_be_disabled()
    page.fill("#picked-typed", "2")
    expect(acts).to_be_disabled()
    page.fill("#picked-typed", "3")
    acts.click()
    expect(page.locator("#toasts")).to_contain_text("Deleted 3 queues with 3 messages")
    expect(page.locator("#table")).to_contain_text("Nothing matches this filter.")


def test_the_bar_for_picked_rows_is_in_sight_on_a_long_list(
    page: Page, channel: BlockingChannel
) -> None:
    mark = uuid.uuid4().hex[:8]
    for number in range(60):
        channel.queue_declare(f"{mark}.{number}")
    page.goto(f"/queues?q={mark}")
    page.check("tbody tr:first-child input[type=checkbox]")
    expect(page.locator("[data-bulk]")).to_be_in_viewport()
    for number in range(60):
        channel.queue_delete(f"{mark}.{number}")


def test_nothing_is_deleted_without_the_number_of_queues(
    page: Page, channel: BlockingChannel, queue: str, watch: Watch
) -> None:
    watch.allow(400)
    page.goto(f"/queues?q={queue}")
    page.check("[data-select-all]")
    page.click("[data-bulk] >> text=Delete…")
    page.fill("#picked-typed", "1")
    page.evaluate("document.getElementById('picked-typed').value = '7'")
    page.click("#picked [data-acts]")
    expect(page.locator("[role=alert]:visible")).to_contain_text("Nothing was done")
    channel.queue_declare(queue, passive=True)


def test_it_binds_and_unbinds(page: Page, channel: BlockingChannel, queue: str) -> None:
    page.goto(f"/queues/%2F/{queue}/bindings")
    page.select_option("#bind-source", "amq.topic")
    page.fill("#bind-key", "order.*.paid")
    page.click("button:has-text('Bind')")
    expect(page.locator("table")).to_contain_text("order.*.paid")
    channel.basic_publish("amq.topic", "order.eu.paid", b"bound")
    assert ready(channel, queue) == 1
    page.click("button:has-text('Unbind')")
    expect(page.locator("table")).not_to_contain_text("order.*.paid")


def test_an_exchange_says_when_nothing_took_a_message(
    page: Page, channel: BlockingChannel, queue: str
) -> None:
    channel.queue_bind(queue, "amq.direct", queue)
    page.goto("/exchanges/%2F/amq.direct")
    page.fill("#publish-key", "nobody.listens")
    page.click("text=Publish message")
    expect(page.locator("#published")).to_contain_text("Not routed")
    page.fill("#publish-key", queue)
    page.click("text=Publish message")
    expect(page.locator("#published")).to_contain_text("Published")
    assert ready(channel, queue) == 1


def test_it_reads_a_stream(page: Page, channel: BlockingChannel, watch: Watch) -> None:
    name = f"stream-{uuid.uuid4().hex[:8]}"
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for number in range(8):
        channel.basic_publish("", name, b"event %d" % number)
    page.goto(f"/queues/%2F/{name}/messages")
    page.fill("#read-offset", "5")
    page.click("button:has-text('Read messages')")
    expect(page.locator("#got")).to_contain_text("3 messages, offsets 5 to 7")
    expect(page.locator("#got .payload").first).to_contain_text("event 5")
    assert ready(channel, name) == 8
    watch.allow(400)
    page.fill("#read-offset", "middle")
    page.click("button:has-text('Read messages')")
    expect(page.locator("#got")).to_contain_text("Nothing was read.")
    for tab in ("", "/settings"):
        page.goto(f"/queues/%2F/{name}{tab}")
        expect(page.locator("main")).to_contain_text("Next offset")
    channel.queue_delete(name)


def test_it_finds_messages_of_a_stream(page: Page, channel: BlockingChannel, watch: Watch) -> None:
    name = f"stream-{uuid.uuid4().hex[:8]}"
    index = {"x-queue-type": "stream", "x-stream-index": "message_id, header:order_id"}
    channel.queue_declare(name, durable=True, arguments=index)
    channel.confirm_delivery()
    for number in range(30):
        headers = {"order_id": 4700 + number % 15, "<b>": "&amp;"}
        properties = BasicProperties(message_id=f"m{number}", headers=headers)
        channel.basic_publish("", name, b"<i>order</i> %d" % number, properties)
    page.goto(f"/queues/%2F/{name}/messages")
    expect(page.locator("main")).to_contain_text("by message_id, header:order_id")
    page.fill("#search-words", "order_id=4711 since yesterday")
    page.click("button:has-text('Find messages')")
    expect(page.locator("#found")).to_contain_text("2 messages, the newest first")
    expect(page.locator("#found .payload").first).to_contain_text("<i>order</i> 26")
    page.fill("#search-words", "message_id=m3 until 2020-01-01")
    page.click("button:has-text('Find messages')")
    expect(page.locator("#found")).to_contain_text("No message has this key.")
    watch.allow(400)
    for words, wrong in (
        ("4711", "is not indexed by ''"),
        ("<b>=1", "is not indexed by '<b>'"),
        ("order_id=1 since noon", "'noon' is no time"),
    ):
        page.fill("#search-words", words)
        page.click("button:has-text('Find messages')")
        expect(page.locator("#found")).to_contain_text("Nothing was searched.")
        expect(page.locator("#found")).to_contain_text(wrong)
    page.goto(f"/queues/%2F/{name}/settings")
    expect(page.locator("main")).to_contain_text("Files unsealed")
    channel.queue_delete(name)
