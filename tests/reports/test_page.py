"""The Reports page in a real browser: empty, running, done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from tests.appliance import Appliance
from tests.reports.conftest import gate_of
from tests.reports.test_end_to_end import api, publish_and_consume, run

pytest.importorskip("pyspark")

CHROMIUM = Path("/usr/bin/chromium")
RUN_MS = 240_000
STARTING = re.compile(r"starting Spark, .* so far")


@contextmanager
def spark_held(appliance: Appliance) -> Iterator[None]:
    """No Spark starts within: what the page says of it stands there for as long as is needed."""
    gate_of(appliance).touch()
    try:
        yield
    finally:
        gate_of(appliance).unlink()


@pytest.fixture(scope="module")
def context(appliance: Appliance) -> Iterator[BrowserContext]:
    """A browser signed in as guest."""
    if not CHROMIUM.exists():
        pytest.skip("there is no chromium")
    host, port = appliance.addresses["http"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        context = browser.new_context(base_url=f"http://{host}:{port}")
        page = context.new_page()
        page.goto("/")
        page.locator("input:not([type=hidden]):not([type=password])").first.fill("guest")
        page.locator("input[type=password]").fill("guest")
        page.keyboard.press("Enter")
        expect(page.locator("#live")).to_be_visible()
        page.close()
        yield context
        browser.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that fails the test if the browser complains of anything."""
    complaints: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    yield page
    page.close()
    assert complaints == []


def test_it_runs_a_report_and_shows_progress_and_result(appliance: Appliance, page: Page) -> None:
    publish_and_consume(appliance)
    page.goto("/reports")
    status = page.locator("#report-status")
    with spark_held(appliance):
        page.get_by_role("button", name="Run now").click()
        expect(status).to_contain_text(STARTING, timeout=RUN_MS)
        expect(status.get_by_role("button", name="Cancel")).to_be_visible()
        # The seconds on the page go on while nothing else does.
        before = status.inner_text()
        expect(status).not_to_have_text(before, timeout=RUN_MS)
        expect(status).to_contain_text(STARTING, timeout=RUN_MS)
    expect(status.get_by_role("button", name="Run now")).to_be_visible(timeout=RUN_MS)
    # What stands on the page in between is in the record; tests/reports/test_status.py reads it.
    progress = api(appliance).get("/reports/queue-usage").json()["last"]["progress"]
    assert progress["stages"] > 0 and progress["rows_read"] > 0
    expect(page.locator(".u-over")).to_have_count(2)
    row = page.locator("table.report tbody tr", has_text="orders").first
    expect(row).to_contain_text("250")
    expect(page.locator("main")).to_contain_text(re.compile(r"Computed .* lines of the usage feed"))
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    text = Path(download.value.path()).read_text()
    assert text.startswith("hour,vhost,queue,messages_in") and "'=SUM(A1)" in text


def test_it_filters_by_queue_and_fits_a_phone(appliance: Appliance, page: Page) -> None:
    client = api(appliance)
    if client.get("/reports/queue-usage/runs/latest").status_code == 404:
        run(client)
    page.set_viewport_size({"width": 375, "height": 800})
    page.goto("/reports?q=ORD")
    names = page.locator("table.report tbody tr td.name-cell:nth-child(3)")
    expect(names.first).to_have_text("orders")
    assert set(names.all_inner_texts()) == {"orders"}
    page.goto("/reports?q=no+such+queue&page=7")
    expect(page.locator("main")).to_contain_text("Nothing matches this filter.")
    assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_it_answers_a_question_of_its_own_by_the_range_in_the_url(
    appliance: Appliance, page: Page
) -> None:
    publish_and_consume(appliance)
    page.goto("/reports/traffic?grain=hour&by=exchange&from=2026-01-01")
    expect(page.locator("main")).to_contain_text("There is no result for this choice yet.")
    with spark_held(appliance):
        page.get_by_role("button", name="Run now").click()
        expect(page.locator("#report-status")).to_contain_text(STARTING, timeout=RUN_MS)
    row = page.locator("table.report tbody tr").first
    expect(row).to_be_visible(timeout=RUN_MS)
    assert "by=exchange" in page.url and "from=2026-01-01" in page.url
    expect(page.get_by_label("By", exact=True)).to_have_value("exchange")
    wrong = page.request.get("/reports/traffic?from=soon")
    assert wrong.status == 400 and "not a date such as 2026-11-21" in wrong.text()
