"""Every page, wide and on a phone: no report, no error, nothing to scroll sideways, one heading."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import NARROW, WIDE, Watch
from tests.web.network import Requests

NAMELESS = """
() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href]")]
  .filter((e) => !e.labels?.length && !e.ariaLabel && !e.textContent.trim() && !e.title)
  .map((e) => e.outerHTML.slice(0, 200))
"""

PAGES = [
    "/",
    "/problems",
    "/queues",
    "/queues/%2F/web.stage",
    "/queues/%2F/web.stage/messages",
    "/queues/%2F/web.stage/consumers",
    "/queues/%2F/web.stage/bindings",
    "/queues/%2F/web.stage/settings",
    "/exchanges",
    "/exchanges/%2F/amq.topic",
    "/exchanges/%2F/amq.default",
    "/connections",
    "/channels",
    "/consumers",
    "/vhosts",
    "/policies",
    "/definitions",
    "/definitions?action=look&for=rabbitmq",
    "/policy",
    "/federation",
    "/upstream",
    "/upstream?set=1",
    "/shovels",
    "/shovel",
    "/policy?operator=1",
    "/vhosts/%2F",
    "/users",
    "/users/guest",
    "/node",
    "/console",
    "/connect",
    "/api-docs",
]


@pytest.fixture(scope="module", autouse=True)
def stage(shared_leveret: Appliance) -> Iterator[BlockingChannel]:
    """Something to see on every page: a queue with messages, a binding, a consumer."""
    with pika.BlockingConnection(pika.URLParameters(shared_leveret.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("web.stage", durable=True, arguments={"x-note": "a" * 200})
        channel.queue_bind("web.stage", "amq.topic", "a.rather.long.routing.key.with.many.words.#")
        for number in range(20):
            channel.basic_publish(
                "amq.topic", "a.rather.long.routing.key.with.many.words", b"x" * number
            )
        channel.basic_qos(prefetch_count=5)
        channel.basic_consume("web.stage", lambda *delivered: None)
        yield channel
        channel.queue_delete("web.stage")


@pytest.mark.parametrize("path", PAGES)
def test_it_opens_without_a_complaint(
    path: str, make_page: Callable[..., Page], session_state: Any
) -> None:
    page = make_page(session_state, WIDE)
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        page.goto(path)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator("#live-state")).to_have_text("live")
        too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert too_wide <= 0, f"{path} is {too_wide} px too wide at {viewport['width']} px"


@pytest.mark.parametrize("path", ["/", "/queues", "/exchanges", "/connections"])
def test_a_page_that_was_open_before_asks_for_little(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for_load_state("networkidle")
    requests = Requests(page.context.new_cdp_session(page))
    page.goto(path)
    page.wait_for_load_state("networkidle")
    assert 1 <= requests.take() <= 10


def test_a_page_that_is_not_there_says_so(page: Page, watch: Watch) -> None:
    watch.allow(404)
    page.goto("/queues/%2F/no-such-queue")
    expect(page.locator("h1")).to_have_text("Not found")


def test_an_address_that_leads_nowhere_says_so(page: Page, watch: Watch) -> None:
    watch.allow(404)
    page.goto("/nowhere")
    expect(page.locator("h1")).to_have_text("Not found")


def test_every_control_has_a_name(page: Page) -> None:
    nameless = {}
    for path in PAGES:
        page.goto(path, wait_until="domcontentloaded")
        nameless[path] = page.evaluate(NAMELESS)
    assert {path: found for path, found in nameless.items() if found} == {}


CUT = """
(select) => {
  const pen = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(select);
  pen.font = style.font;
  const arrow = 24;
  const room = select.clientWidth - parseFloat(style.paddingLeft) - arrow;
  const texts = [...select.options].map((option) => option.text);
  return texts.filter((text) => pen.measureText(text).width > room);
}
"""


@pytest.mark.parametrize(
    ("path", "form"), [("/exchanges", "create-exchange"), ("/queues", "create-queue")]
)
def test_every_choice_of_a_form_can_be_read_on_a_phone(page: Page, path: str, form: str) -> None:
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    page.goto(path)
    page.click(f"[data-open={form}]")
    selects = page.locator(f"#{form} select:visible")
    assert selects.count() >= 3
    cut = [text for select in selects.all() for text in select.evaluate(CUT)]
    assert cut == []


def test_a_list_on_a_phone_says_which_virtual_host_where_there_are_several(
    page: Page, shared_leveret: Appliance
) -> None:
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        api.put("/api/vhosts/web-second", json={}).raise_for_status()
        try:
            page.set_viewport_size(NARROW)  # type: ignore[arg-type]
            page.goto("/exchanges?q=amq.topic")
            rows = page.locator("table.rows tbody tr")
            second = rows.filter(has_text="web-second")
            expect(second).to_have_count(1)
            expect(second.locator("td.where")).to_be_visible()
            page.goto("/exchanges?q=amq.topic&vhost=web-second")
            expect(rows).to_have_count(1)
            expect(rows.get_by_role("link", name="web-second")).to_be_hidden()
        finally:
            api.delete("/api/vhosts/web-second")


def test_the_palette_finds_a_queue(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("web.sta")
    expect(page.locator("#palette-results")).to_contain_text("web.stage")
    page.keyboard.press("Enter")
    expect(page).to_have_title("web.stage · Leveret")


def test_the_theme_is_kept(page: Page) -> None:
    page.goto("/")
    page.click("#user-menu summary")
    page.click("[data-theme-choice=dark]")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.goto("/queues")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert dark == "rgb(15, 18, 22)"
