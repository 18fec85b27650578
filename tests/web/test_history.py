"""The history's page: one box that finds messages, the life of each, and replays of what is
picked."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import NARROW, Watch

KEYS = "message_id,header:order_id"
PASSWORD = "a password"


@pytest.fixture
def admin(shared_leveret: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{shared_leveret.http_url}/api", auth=("guest", "guest"), timeout=60
    ) as client:
        yield client


@pytest.fixture
def vhost(admin: httpx.Client) -> Iterator[str]:
    name = f"history-{uuid.uuid4().hex[:8]}"
    admin.put(f"/vhosts/{name}").raise_for_status()
    definition = {"history": "full", "history-keys": KEYS, "history-events": True}
    answer = admin.put(f"/policies/{name}/all", json={"pattern": ".*", "definition": definition})
    answer.raise_for_status()
    yield name
    admin.delete(f"/vhosts/{name}").raise_for_status()


@pytest.fixture
def orders(shared_leveret: Appliance, vhost: str) -> Iterator[BlockingChannel]:
    """A channel in that virtual host, with a queue whose rejected messages go to another one."""
    port = pika.URLParameters(shared_leveret.amqp_url).port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        channel.queue_declare("dead", durable=True)
        yield channel


def publish(channel: BlockingChannel, number: int, key: str = "orders") -> None:
    properties = pika.BasicProperties(headers={"order_id": number}, message_id=f"<i>m{number}")
    channel.basic_publish("", key, b"order %d" % number, properties)


def look_for(page: Page, words: str) -> None:
    page.goto("/history")
    page.fill("[name=words]", words)
    page.click("button:has-text('Find messages')")


def test_one_box_finds_messages_and_leads_to_the_life_of_each(
    page: Page, orders: BlockingChannel, vhost: str
) -> None:
    for number in (4711, 4711, 5):
        publish(orders, number)
    orders.basic_publish(
        "amq.direct", "nowhere", b"", pika.BasicProperties(headers={"order_id": 4711})
    )
    method, _, _ = orders.basic_get("orders")
    orders.basic_reject(method.delivery_tag, requeue=False)
    look_for(page, f"order_id=4711 since yesterday vhost={vhost}")
    rows = page.locator("#found tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("unroutable")
    look_for(page, f"4711 since 2h queue=orders vhost={vhost}")
    expect(rows).to_have_count(2)
    rows.last.locator("th a").click()
    events = page.locator("#life li")
    expect(events).to_have_count(4)
    expect(events.nth(0)).to_contain_text("published, routed to orders")
    expect(events.nth(1)).to_contain_text("taken by basic.get orders")
    expect(events.nth(2)).to_contain_text("rejected orders")
    expect(events.nth(3)).to_contain_text("dead-lettered orders to dead")
    expect(page.locator("#places tbody tr")).to_have_text(
        [re.compile("orders.*dead-lettered"), re.compile("dead.*in the queue")]
    )
    expect(page.locator("main")).to_contain_text("<i>m4711")
    expect(page.locator(".payload")).to_have_text("order 4711")


def test_what_is_picked_is_replayed(page: Page, orders: BlockingChannel, vhost: str) -> None:
    for _ in range(3):
        publish(orders, 77)
    look_for(page, f"order_id=77 vhost={vhost}")
    boxes = page.locator("#found tbody input")
    expect(boxes).to_have_count(3)
    boxes.nth(0).check()
    boxes.nth(2).check()
    page.fill("#replay-target", "dead")
    page.click("button:has-text('Replay')")
    expect(page.locator("#toasts")).to_contain_text("replays 2 messages")
    expect(page.locator("#transfers tbody tr")).to_contain_text("finished")
    taken = [orders.basic_get("dead", auto_ack=True)[2] for _ in range(3)]
    assert taken == [b"order 77", b"order 77", None]


def test_wrong_words_and_targets_are_told_and_stay_in_the_box(
    page: Page, watch: Watch, orders: BlockingChannel, vhost: str
) -> None:
    watch.allow(400)
    publish(orders, 1)
    words = f"colour=<b>red vhost={vhost}"
    look_for(page, words)
    expect(page.locator("[role=alert]")).to_contain_text("is not indexed by 'colour', but by")
    expect(page.locator("[name=words]")).to_have_value(words)
    look_for(page, "since yesterday")
    expect(page.locator("[role=alert]")).to_contain_text("there is no value", ignore_case=True)
    look_for(page, f"order_id=1 since today until 2020-01-01 vhost={vhost}")
    expect(page.locator("[role=alert]")).to_contain_text("ends before it begins")
    look_for(page, f"order_id=2 vhost={vhost}")
    expect(page.locator("main")).to_contain_text("No message has this key.")
    look_for(page, f"order_id=1 vhost={vhost}")
    page.locator("#found tbody input").check()
    page.fill("#replay-target", "no <i>such")
    page.click("button:has-text('Replay')")
    expect(page.locator("[role=alert]")).to_contain_text("no queue 'no <i>such'")
    expect(page.locator("#found tbody tr")).to_have_count(1)


def test_an_unknown_message_and_one_without_events_are_explained(
    page: Page, watch: Watch, admin: httpx.Client, orders: BlockingChannel, vhost: str
) -> None:
    watch.allow(404)
    definition = {"history": "headers", "history-keys": KEYS}
    admin.put(f"/policies/{vhost}/all", json={"pattern": ".*", "definition": definition})
    publish(orders, 8)
    look_for(page, f"order_id=8 vhost={vhost}")
    expect(page.locator("main")).to_contain_text("they cannot be replayed")
    page.locator("#found tbody th a").click()
    expect(page.locator("#life li")).to_have_count(1)
    expect(page.locator("main")).to_contain_text("no events are kept of its queues")
    expect(page.locator("main")).to_contain_text("not recorded: the policy says headers")
    page.goto(f"/history/life?vhost={vhost}&offset=123456")
    expect(page.locator("main")).to_contain_text("This message is not in the history.")


def test_a_tenant_sees_the_histories_of_its_own_virtual_hosts_only(
    make_page: Callable[..., Page],
    watch: Watch,
    admin: httpx.Client,
    orders: BlockingChannel,
    vhost: str,
) -> None:
    watch.allow(400)
    watch.allow(403)
    publish(orders, 4711)
    own, user = f"own-{uuid.uuid4().hex[:8]}", f"tenant-{uuid.uuid4().hex[:8]}"
    admin.put(f"/vhosts/{own}").raise_for_status()
    admin.put(f"/users/{user}", json={"password": PASSWORD, "tags": "management"})
    rights: dict[str, Any] = {"configure": ".*", "write": ".*", "read": ".*"}
    admin.put(f"/permissions/{own}/{user}", json=rights).raise_for_status()
    page = make_page(None, NARROW)
    try:
        page.goto("/login")
        page.fill("#username", user)
        page.fill("#password", PASSWORD)
        page.click("button[type=submit]")
        page.wait_for_url(re.compile("/$"))
        page.goto("/history")
        expect(page.locator("main")).to_contain_text("No history is kept in the virtual hosts")
        page.goto(f"/history/life?vhost={vhost}&offset=0")
        expect(page.locator("body")).not_to_contain_text("order 4711")
        # With a pattern for all names it sees that there is one, and no more.
        admin.put(f"/permissions/{vhost}/{user}", json=rights).raise_for_status()
        look_for(page, "order_id=4711")
        expect(page.locator("[role=alert]")).to_contain_text("tag administrator or policymaker")
        expect(page.locator("#found")).to_have_count(0)
        named = rights | {"read": r"^(orders|amq\.history)$"}
        admin.put(f"/permissions/{vhost}/{user}", json=named).raise_for_status()
        look_for(page, "order_id=4711")
        expect(page.locator("#found tbody tr")).to_have_count(1)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= NARROW["width"]
    finally:
        # A page whose user was deleted cannot connect to /live/, which its console reports.
        page.close()
        admin.delete(f"/users/{user}")
        admin.delete(f"/vhosts/{own}")
