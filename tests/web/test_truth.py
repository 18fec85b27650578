"""What a page says of things that change: problems, refusals, blocked clients, rows that came."""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.disks import SmallDisk
from tests.web.test_live import sign_in


@pytest.fixture
def named(shared_leveret: Appliance) -> Iterator[BlockingChannel]:
    """A channel of a client that calls itself `orders-api`."""
    with connected(shared_leveret, "orders-api") as connection:
        yield connection.channel()


def connected(leveret: Appliance, name: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(leveret.amqp_url)
    parameters.client_properties = {"connection_name": name}
    return pika.BlockingConnection(parameters)


def test_a_queue_that_refuses_is_red_and_says_why_and_whose(
    page: Page, named: BlockingChannel
) -> None:
    name = f"full.{uuid.uuid4().hex[:8]}"
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    named.queue_declare(name, arguments=arguments)
    named.confirm_delivery()
    named.basic_publish("", name, b"fits")
    page.goto(f"/queues/%2F/{name}")
    for _ in range(3):
        with contextlib.suppress(NackError):
            named.basic_publish("", name, b"one too many")
    expect(page.locator("h1 .state.bad")).to_have_text("refusing")
    notice = page.locator("#refusals")
    expect(notice).to_contain_text("/s of what is published here is refused, 3 since")
    expect(notice).to_contain_text("max-length")
    expect(notice).to_contain_text("set by the queue's declaration")
    expect(notice).to_contain_text("orders-api")
    expect(notice).to_contain_text("guest")
    page.goto(f"/queues?q={name}")
    expect(page.locator("#table .state.bad")).to_have_text("refusing")
    page.goto("/")
    expect(page.locator("#problems")).to_contain_text(name)
    named.queue_delete(name)


def test_clients_stand_with_their_names_in_the_lists(page: Page, named: BlockingChannel) -> None:
    name = named.queue_declare("", exclusive=True).method.queue
    named.basic_consume(name, lambda *_: None, consumer_tag="worker-1")
    for address in ("/connections?q=orders-api", "/channels?q=/^orders/", "/consumers?q=worker-1"):
        page.goto(address)
        expect(page.locator("#table")).to_contain_text("orders-api")
    page.goto(f"/queues/%2F/{name}/consumers")
    expect(page.locator("main table")).to_contain_text("orders-api")


def test_a_list_says_that_rows_came_and_went_and_stays_as_it_is(
    page: Page, named: BlockingChannel
) -> None:
    mark = uuid.uuid4().hex[:8]
    for number in range(2):
        named.queue_declare(f"{mark}.{number}")
    page.goto(f"/queues?q={mark}")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator("#live-state")).to_have_text("live")
    expect(page.locator("#list-changes[data-settled]")).to_have_count(1)
    height = page.evaluate("document.querySelector('#table').getBoundingClientRect().top")
    for number in range(2, 5):
        named.queue_declare(f"{mark}.{number}")
    named.queue_delete(f"{mark}.0")
    notice = page.locator("#list-changes")
    expect(notice).to_contain_text("3 new, 1 gone")
    expect(rows).to_have_count(2)
    assert page.evaluate("document.querySelector('#table').getBoundingClientRect().top") == height
    notice.locator("button").click()
    expect(rows).to_have_count(4)
    expect(notice).to_be_hidden()
    for number in range(1, 5):
        named.queue_delete(f"{mark}.{number}")


def test_all_problems_have_a_page_that_follows(page: Page, named: BlockingChannel) -> None:
    mark = uuid.uuid4().hex[:8]
    names = [f"{mark}.{number}" for number in range(5)]
    for name in names:
        named.queue_declare(name)
    page.goto("/problems")
    expect(page.locator("#live-state")).to_have_text("live")
    for name in names:
        named.basic_publish("", name, b"x" * 10)
    line = page.locator("#problem-list li", has_text=mark)
    expect(line).to_contain_text("no consumer")
    expect(line).to_contain_text("queues have")
    expect(line).to_contain_text(f"in /: {mark}.")
    line.locator("a").click()
    expect(page.locator("#table")).to_contain_text(mark)
    for name in names:
        named.queue_delete(name)


@pytest.fixture
def own(make_leveret: Callable[..., Appliance], make_page: Callable[..., Page]) -> Any:
    """An appliance of the test's own with a page that is signed in."""

    def open_page(**settings: Any) -> tuple[Appliance, Page]:
        leveret = make_leveret(**settings)
        page = make_page()
        page.goto(f"{leveret.http_url}/login")
        sign_in(page)
        return leveret, page

    return open_page


def test_while_the_broker_is_away_the_page_says_of_when_it_is(own: Any) -> None:
    leveret, page = own()
    expect(page.locator("#live-state")).to_have_text("live")
    # The supervisor would start the broker again at once, often before the page tells of the gap.
    leveret.signal(signal.SIGSTOP)
    try:
        leveret.signal(signal.SIGKILL, "broker")
        notice = page.locator("#as-of p")
        expect(notice).to_contain_text("The broker is away.", timeout=30_000)
        expect(notice).to_contain_text("Everything on this page is as of")
        expect(page.locator("body.lost")).to_have_count(1)
    finally:
        leveret.signal(signal.SIGCONT)
    expect(page.locator("#as-of p")).to_have_count(0, timeout=30_000)
    expect(page.locator("body.lost")).to_have_count(0)


def test_a_broker_that_hangs_is_away_until_it_answers_again(own: Any) -> None:
    leveret, page = own()
    expect(page.locator("#live-state")).to_have_text("live")
    leveret.signal(signal.SIGSTOP, "broker")
    try:
        notice = page.locator("#as-of p")
        expect(notice).to_contain_text("The broker is away.", timeout=60_000)
        answer = httpx.get(f"{leveret.http_url}/api/overview", auth=("guest", "guest"), timeout=60)
        assert (answer.status_code, answer.json()["error"]) == (503, "broker_away")
    finally:
        leveret.signal(signal.SIGCONT, "broker")
    expect(page.locator("#as-of p")).to_have_count(0, timeout=60_000)
    answer = httpx.get(f"{leveret.http_url}/api/overview", auth=("guest", "guest"), timeout=60)
    assert answer.status_code == 200


def test_a_blocked_connection_looks_blocked(own: Any, small_disk: SmallDisk) -> None:
    leveret, page = own(data_dir=small_disk.path / "data", disk_free_limit=16 << 20)
    with connected(leveret, "importer") as connection:
        channel = connection.channel()
        page.goto(f"{leveret.http_url}/connections")
        state = page.locator("#table [data-connection-state]")
        expect(state).to_have_text("running")
        small_disk.fill(leave=8 << 20)
        expect(page.locator('#alarms [data-alarm="disk"]')).to_contain_text("disk alarm")
        channel.basic_publish("", "nowhere", b"x")
        expect(page.locator("#table .state.bad")).to_have_text("blocked")
        page.click("#table tbody th a")
        expect(page.locator("h1 .state.bad")).to_have_text("blocked")
        small_disk.clear()
        expect(page.locator("h1 .state.good")).to_have_text("running")
    page.close()
    leveret.close()
