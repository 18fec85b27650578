"""How much a browser that was never here asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, Route, expect

from tests.web.network import Requests

REQUESTS_AT_MOST = 10
PAGES = (
    "/",
    "/queues",
    "/connections",
    "/policy",
    "/reports",
    "/node",
    "/console",
    "/queues/%2F/{queue}",
    "/queues/%2F/{queue}/messages",
    "/exchanges/%2F/amq.topic",
    "/vhosts/%2F",
)


@pytest.mark.parametrize("address", PAGES)
def test_a_first_visit_asks_for_few_files_and_gets_each(
    make_page: Callable[..., Page], session_state: Any, queue: str, address: str
) -> None:
    page = make_page(session_state)
    requests = Requests(page.context.new_cdp_session(page))
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on(
        "response",
        lambda answer: failed.append(answer.url) if answer.status >= 400 else None,
    )
    page.goto(address.format(queue=queue), wait_until="load")
    expect(page.locator("#live-state")).to_have_text("live")
    assert failed == []
    assert requests.take() <= REQUESTS_AT_MOST


def test_a_page_in_use_asks_for_no_file_again(page: Page, channel: BlockingChannel) -> None:
    page.goto("/", wait_until="load")
    expect(page.locator("#live-state")).to_have_text("live")
    requests = Requests(page.context.new_cdp_session(page))
    page.goto("/", wait_until="load")
    expect(page.locator("#live-state")).to_have_text("live")
    assert requests.take() == 1


def test_files_come_compressed_and_may_be_kept_for_ever(page: Page) -> None:
    answers: dict[str, dict[str, str]] = {}
    page.on("response", lambda answer: answers.update({answer.url: answer.headers}))
    page.goto("/", wait_until="load")
    kept = {url: headers for url, headers in answers.items() if "/static/" in url}
    large = [headers for headers in kept.values() if int(headers["content-length"]) > 1024]
    assert large
    assert all(headers["content-encoding"] == "gzip" for headers in large)
    assert all("immutable" in headers["cache-control"] for headers in kept.values())


COUNT_FORMATTERS = """
window.formatters = [];
for (const name of ["NumberFormat", "DateTimeFormat"]) {
  const made = Intl[name];
  Intl[name] = function (...options) {
    window.formatters.push(name);
    return new made(...options);
  };
}
"""


@pytest.mark.parametrize("address", ["/queues", "/exchanges"])
def test_a_list_without_times_makes_no_formatter_of_the_browser(page: Page, address: str) -> None:
    page.add_init_script(COUNT_FORMATTERS)
    page.goto(address, wait_until="load")
    expect(page.locator("#live-state")).to_have_text("live")
    assert page.evaluate("window.formatters") == []


def test_what_the_numbers_of_a_list_show_is_in_its_head_alone(page: Page, queue: str) -> None:
    page.goto(f"/queues?q={queue}")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(1)
    assert page.locator("#table thead [data-live]").count() == 8
    assert page.locator("#table tbody :is([data-live], [type=hidden])").count() == 0
    # As much as the row of a queue without arguments needs, with its name four times.
    assert len(rows.inner_html()) < 900 + 4 * len(queue)


def test_a_page_is_read_while_its_style_sheet_is_on_its_way(page: Page) -> None:
    held: list[Route] = []
    page.route("**/css/site.css", lambda route: held.append(route))
    page.goto("/queues", wait_until="commit")
    page.wait_for_selector("#announce", state="attached")
    assert held
    held[0].continue_()
    expect(page.locator("#live-state")).to_have_text("live")
