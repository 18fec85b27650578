"""Results of reports fit the window, whatever they hold."""

from __future__ import annotations

import base64
import re
import shutil
import struct
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pika
import pytest
from playwright.sync_api import Page, expect

from frontend.report_cells import Layout, exact, written
from frontend.views.report_charts import page_of
from management.reports.catalog import REPORTS
from management.reports.measures import Column
from management.reports.runs import Runs
from tests.appliance import Appliance
from tests.web import report_results

HOSTILE = '<img src=x onerror="alert(1)">'
WIDE = 9
"""Views with more columns can be too wide."""


@pytest.fixture
def addresses(shared_leveret: Appliance) -> Iterator[list[str]]:
    """Pages of reports with results: the views with many columns."""
    places = [shared_leveret.data_dir / name for name in ("reports", "run/reports")]
    before = {path for place in places for path in place.glob("*/*")}
    written = report_results.write(shared_leveret.data_dir)
    yield [f"/reports/{name}?{urlencode(query)}" for name, query, count in written if count > WIDE]
    for path in {path for place in places for path in place.glob("*/*")} - before:
        shutil.rmtree(path, ignore_errors=True)


def test_no_report_is_wider_than_a_window_of_1280_pixels(page: Page, addresses: list[str]) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    assert addresses
    wide = []
    for address in addresses:
        page.goto(address, wait_until="domcontentloaded")
        expect(page.locator("table.report tbody tr")).to_have_count(report_results.ROWS)
        over = page.evaluate(
            "(() => { const e = document.querySelector('.table-scroll');"
            " return e.scrollWidth - e.clientWidth; })()"
        )
        if over > 0:
            wide.append((address, over))
    assert wide == []


def test_no_report_with_a_gap_is_wider_than_a_phone(page: Page, addresses: list[str]) -> None:
    page.set_viewport_size({"width": 375, "height": 800})
    for address in addresses:
        page.goto(address, wait_until="domcontentloaded")
        expect(page.locator(".sentence")).to_contain_text(
            re.compile(r"Counts are missing from .+ to")
        )
        assert page.evaluate("document.documentElement.scrollWidth") == 375, address


def test_on_a_phone_the_reason_of_a_failure_and_the_list_of_runs_can_be_read(
    page: Page, addresses: list[str], shared_leveret: Appliance
) -> None:
    runs = Runs(shared_leveret.data_dir / "reports")
    now = int(time.time() * 1000) + 1000  # newer than the results
    run = runs.new("traffic", "guest", now)
    run.state, run.error, run.started_at, run.ended_at = "failed", "no Java " * 9, now, now + 1
    runs.write(run)
    page.set_viewport_size({"width": 375, "height": 800})
    page.goto("/reports/traffic", wait_until="domcontentloaded")
    notice = page.locator("#report-status .notice.bad")
    expect(notice).to_contain_text("no Java no Java")
    boxes = [notice.locator(one).bounding_box() for one in ("time", "button")]
    at, retry = (box for box in boxes if box is not None)
    assert at["x"] + at["width"] <= retry["x"] or at["y"] >= retry["y"] + retry["height"]
    by = page.locator(".report-runs tbody td:nth-child(2) bdi").first.bounding_box()
    assert by is not None and by["height"] < 30, "a name of five letters takes one line"


def test_the_report_of_the_disk_has_no_empty_virtual_host_and_no_filter(
    page: Page, addresses: list[str]
) -> None:
    page.goto("/reports/disk", wait_until="domcontentloaded")
    headings = page.locator("table.report thead th")
    expect(headings.first).to_have_text("Days")
    expect(page.get_by_role("search").get_by_role("button", name="Show")).to_have_count(0)


def test_a_click_on_a_heading_sorts_the_table_and_its_files(
    page: Page, addresses: list[str]
) -> None:
    address = next(one for one in addresses if "/traffic" in one)
    page.goto(address, wait_until="domcontentloaded")
    heading = page.locator("table.report thead th", has_text=re.compile("^In$"))
    heading.get_by_role("link").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    assert "sort=-messages_in" in page.url
    expect(page.get_by_role("link", name="CSV")).to_have_attribute(
        "href", re.compile("sort=-messages_in")
    )
    heading.get_by_role("link").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    page.get_by_label(re.compile("^Which ")).select_option("5")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("top=5"))
    assert "sort=messages_in" in page.url
    wrong = page.request.get(address + ("&" if "?" in address else "?") + "sort=weight")
    assert wrong.status == 400 and "not one of" in wrong.text()


def test_charts_are_saved_as_png_files(page: Page, addresses: list[str]) -> None:
    page.goto(next(one for one in addresses if one.startswith("/reports/traffic?")))
    buttons = page.locator("[data-png]")
    expect(buttons).not_to_have_count(0)
    for button in buttons.all():
        with page.expect_download() as saved:
            button.click()
        assert saved.value.suggested_filename == f"{button.get_attribute('data-name')}.png"
        assert saved.value.path().read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_charts_are_saved_as_png_files_with_the_colours_of_the_page(
    page: Page, addresses: list[str]
) -> None:
    page.goto(next(one for one in addresses if "/traffic" in one), wait_until="domcontentloaded")
    chart = page.locator("#report-stacked")
    with page.expect_download(timeout=60_000) as download:
        page.locator("[data-png=report-stacked]").click()
    assert re.fullmatch(r"traffic-\w+\.png", download.value.suggested_filename)
    data = Path(download.value.path()).read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    _, _, width, height = map(float, (chart.get_attribute("viewBox") or "").split())
    assert struct.unpack(">II", data[16:24]) == (2 * width, 2 * height)
    colours = page.evaluate(
        """async (base64) => {
          const image = new Image();
          image.src = `data:image/png;base64,${base64}`;
          await image.decode();
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.width, image.height];
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          const { data } = context.getImageData(0, 0, image.width, image.height);
          const found = new Set();
          for (let at = 0; at < data.length; at += 4) {
            found.add(`rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`);
          }
          return [...found];
        }""",
        base64.b64encode(data).decode(),
    )
    bar = chart.locator("rect").first.evaluate("(one) => getComputedStyle(one).fill")
    assert bar in colours and len(colours) > 3


def test_growth_and_disk_show_their_forecast_with_bands(page: Page, addresses: list[str]) -> None:
    for name, lines, limits in (("growth", 3, 0), ("disk", 3, 1)):
        page.goto(f"/reports/{name}", wait_until="domcontentloaded")
        chart = page.locator("#report-forecast")
        expect(chart.locator("polygon.band")).to_have_count(lines)
        expect(chart.locator("line.limit")).to_have_count(limits)
        expect(chart).to_be_visible()


def test_paper_has_the_result_and_nothing_to_press(page: Page, addresses: list[str]) -> None:
    page.goto(next(one for one in addresses if "/traffic" in one), wait_until="domcontentloaded")
    page.evaluate("window.print = () => { document.title = 'printed'; }")
    page.get_by_role("button", name="Print").click()
    expect(page).to_have_title("printed")
    page.emulate_media(media="print")
    expect(page.locator("table.report tbody tr").first).to_be_visible()
    expect(page.locator("#report-stacked")).to_be_visible()
    for hidden in (".side", ".toolbar", ".page-actions", ".report-tabs", "[data-png]"):
        for one in page.locator(hidden).all():
            expect(one).to_be_hidden()
    page.emulate_media(media="screen")


def test_a_user_in_a_report_leads_to_the_connections_of_that_user(
    page: Page, shared_leveret: Appliance
) -> None:
    view = REPORTS["traffic"].view("user")
    address = page_of(view, ("/", "anna & bert"))
    assert address == "/connections?user=anna+%26+bert"
    name = f"drill-{uuid.uuid4().hex[:8]}"
    host, port = shared_leveret.addresses["http"]
    api = httpx.Client(base_url=f"http://{host}:{port}/api", auth=("guest", "guest"), timeout=60)
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with api:
        assert api.put(f"/users/{name}", json={"password": name, "tags": ""}).is_success
        assert api.put(f"/permissions/%2F/{name}", json=everything).is_success
        amqp = shared_leveret.addresses["amqp"]
        credentials = pika.PlainCredentials(name, name)
        with (
            pika.BlockingConnection(pika.ConnectionParameters(*amqp, credentials=credentials)),
            pika.BlockingConnection(pika.ConnectionParameters(*amqp)),
        ):
            page.goto(page_of(view, ("/", name)), wait_until="domcontentloaded")
            expect(page.locator("#table tbody tr")).to_have_count(1)
            expect(page.locator("#table tbody tr")).to_contain_text(name)
            expect(page.locator(".sentence")).to_contain_text(f"Of user {name} only.")
            page.get_by_role("link", name="Show all").click()
            expect(page.locator("#table tbody tr", has_text="guest").first).to_be_visible()
        assert api.delete(f"/users/{name}").is_success


NAME = Column("queue", "text", "Queue")
IN = Column("messages_in", "count", "In")
IN_BEFORE = Column("messages_in_before", "count", "In before")


def test_a_value_and_the_one_before_are_one_cell() -> None:
    layout = Layout.of((NAME, IN, IN_BEFORE))
    assert layout.shown == (NAME, IN)
    row = layout.row(("orders", 1_234_567, 1_000_001))
    assert row.count("<td") == 2
    assert "1.23 M" in row and "before 1 M" in row
    assert 'title="1,234,567"' in row and 'title="1,000,001"' in row


def test_what_does_not_fit_is_listed_where_it_is_not_zero() -> None:
    many = tuple(Column(f"c{place}", "count", f"Counter{place}") for place in range(30))
    layout = Layout.of((NAME, *many))
    assert (*layout.shown, *layout.listed) == (NAME, *many)
    assert layout.listed
    row = layout.row(("orders", *([0] * 29), 7))
    listed = row.partition('class="listed"')[2]
    assert "Counter29</span> 7" in listed
    assert "Counter28" not in listed


def test_hostile_text_in_a_result_is_text() -> None:
    assert "<img" not in Layout.of((NAME, IN)).row((HOSTILE, 1))


def test_times_in_the_list_of_a_row_are_moments() -> None:
    many = tuple(Column(f"c{place}", "count", f"Counter{place}") for place in range(30))
    last = Column("last", "time", "Last hour")
    row = Layout.of((NAME, *many, last)).row(("orders", *([0] * 30), 1_795_456_800_000))
    assert "Last hour</span> <time" in row and "2026-11-23 18:00:00 UTC" in row


def test_less_than_a_second_is_told_in_milliseconds() -> None:
    column = Column("p50", "ms", "p50")
    assert [written(column, value) for value in (0, 7, 999, 1_500)] == [
        "0 ms", "7 ms", "999 ms", "1.5 s",
    ]  # fmt: skip


def test_fractions_have_their_unit() -> None:
    growth = Column("growth", "number", "Growth a day", unit="bytes")
    change = Column("change", "number", "Change", unit="%")
    assert written(growth, 86_397_846.7) == "82.4 MiB" and written(growth, -2048.0) == "-2 KiB"
    assert exact(growth, 86_397_846.7) == "86,397,846.7 bytes"
    assert [written(change, value) for value in (13.71, -4.0)] == ["+13.7 %", "-4.0 %"]


def test_objects_of_a_report_have_a_plural() -> None:
    titles = {view.title: view.plural for one in REPORTS.values() for view in one.views}
    assert titles["Client library"] == "client libraries" and titles["Queue"] == "queues"
