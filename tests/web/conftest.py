"""A real browser against a real appliance.

Every page a test opens is watched: a Content Security Policy report, an error on the console or an
exception in a script fails the test, unless it said beforehand which answer it provokes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from tests.appliance import Appliance
from tests.web.person import Person

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 30_000
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 375, "height": 812}

# Installed before the page's own scripts: later listeners would miss the first reports.
# By the console: a page that calls a function of the test may keep its context from closing.
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
# A notice disappears after four seconds: on a busy machine before the test has asked for it.
KEEP_NOTICES = """
const remove = Element.prototype.remove;
Element.prototype.remove = function () {
  if (!this.classList.contains("toast")) remove.call(this);
};
"""

expect.set_options(timeout=TIMEOUT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what drives a browser, so that `-m "not browser"` leaves it out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


def cell_of(page: Page, path: str, row: int = 0) -> Locator:
    """The cell of a row of the page's table that shows the live value `path`."""
    place = page.locator(f'#table th[data-live="{path}"]').evaluate("head => head.cellIndex")
    return page.locator("#table tbody tr").nth(row).locator("th, td").nth(place)


class Watch:
    """What went wrong in the pages of one context. `allow` names a status the test provokes."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.allowed: list[str] = []

    def allow(self, status: int) -> None:
        self.allowed.append(f"status of {status}")

    def note(self, text: str) -> None:
        if not any(part in text for part in self.allowed):
            self.problems.append(text)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for the tests of this package; every test has a context of its own.

    It is closed with the package: Playwright keeps an event loop running in this thread, in
    which no asynchronous test could run.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def session_state(browser: Browser, shared_leveret: Appliance) -> Any:
    """The cookies of guest, signed in once."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{shared_leveret.http_url}/login")
    page.fill("#username", "guest")
    page.fill("#password", "guest")
    page.click("button[type=submit]")
    page.wait_for_url(f"{shared_leveret.http_url}/")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Fails the test for whatever its pages complained of."""
    watch = Watch()
    yield watch
    assert watch.problems == []


@pytest.fixture
def make_page(
    browser: Browser, shared_leveret: Appliance, watch: Watch
) -> Iterator[Callable[..., Page]]:
    """A function that opens a page in a context of its own: `make_page(state, NARROW)`."""
    contexts: list[BrowserContext] = []

    def make(state: Any = None, viewport: Any = WIDE) -> Page:
        context = browser.new_context(
            base_url=shared_leveret.http_url, viewport=viewport, storage_state=state
        )
        context.set_default_timeout(TIMEOUT_MS)
        context.add_init_script(REPORT_VIOLATIONS)
        context.add_init_script(KEEP_NOTICES)
        page = context.new_page()
        page.on("pageerror", lambda error: watch.note(f"exception: {error}"))
        page.on("console", lambda line: watch.note(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: watch.note(f"dialog: {dialog.message}"))
        contexts.append(context)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(make_page: Callable[..., Page], session_state: Any) -> Page:
    """A page at 1440 pixels, signed in as guest."""
    return make_page(session_state)


@pytest.fixture
def person(shared_leveret: Appliance) -> Iterator[Person]:
    """guest, signed in to the pages without a browser."""
    person = Person(shared_leveret.http_url)
    yield person
    person.client.close()


@pytest.fixture
def channel(shared_leveret: Appliance) -> Iterator[BlockingChannel]:
    """A channel of pika on the vhost /, with confirms."""
    with pika.BlockingConnection(pika.URLParameters(shared_leveret.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    """The name of a durable queue of the test's own."""
    name = f"web.{uuid.uuid4().hex[:12]}"
    channel.queue_declare(name, durable=True)
    yield name
    if channel.is_open:
        channel.queue_delete(name)
