"""Forty names that attack a page, as every kind of name, on every page, in a real browser.

No script of theirs runs, no policy is violated, no element is made of a name, no dialog opens, and
a name that turns text around does so in an element of its own.

The names are also headers and bodies of messages that are looked at, properties of clients, tags
and filters of consumers, reasons of closed connections and users of refused logins (the log's
page), definitions of policies, and texts of the results of reports.

Lists show all of the names; pages of one thing are opened for a few of them, and for all with
LEVERET_TEST_NAMES=all in the environment (`make hostile-names`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow
import pyarrow.parquet
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from frontend import addresses
from management.reports.catalog import REPORTS
from management.reports.runs import Runs
from tests.amqp import raw
from tests.api.conftest import path
from tests.appliance import Appliance
from tests.web.conftest import REPORT_VIOLATIONS, TIMEOUT_MS, WIDE, Watch
from tests.web.test_hostile_names import NAMES as ALL_NAMES

# The last ones, `.` and `..`, cannot be sent in a path.
NAMES = ALL_NAMES[:-2]
# So many columns that their table is moved sideways in its card.
SCROLLED = ("backlog", "changes", "clients")
IS_LONG = os.environ.get("LEVERET_TEST_NAMES") == "all"
RUN_HOUR = datetime(2026, 11, 21, 10, tzinfo=UTC)
PASSWORD = "a password"
PAGES = [
    *("/", "/problems", "/queues", "/exchanges", "/connections", "/channels", "/consumers"),
    *("/policies", "/definitions", "/vhosts", "/users", "/node", "/log", "/reports", "/console"),
    *("/connect", "/api-docs", "/policy", "/federation", "/upstream", "/shovels", "/shovel"),
    *("/history", "/history/life"),
]
MADE_OF_A_NAME = """() => [...document.querySelectorAll('*')].filter((one) =>
  [...one.attributes].some((each) => each.name.startsWith('on') && /alert/.test(each.value))
  || (/^(img|script|svg|iframe)$/i.test(one.tagName)
    && one.type !== 'application/json' && /alert\\(1\\)/.test(one.outerHTML))
  || /javascript:/i.test(one.getAttribute('href') ?? one.getAttribute('src') ?? '')
).map((one) => one.outerHTML.slice(0, 200))"""
BARE_BIDI = """() => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode;
    if (text.parentElement.closest('script,style,textarea,select,pre')) continue;
    if (/[\\u202a-\\u202e\\u2066-\\u2069]/.test(text.data)) found.push(text.data.slice(0, 80));
  }
  return found;
}"""


class Attack:
    """An appliance in which everything has one of the names."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance = appliance
        self.api = httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60)
        self.places = list(PAGES)
        self._clients: list[raw.Client] = []

    def put(self, *where: str, **body: Any) -> bool:
        return self.api.put(path(*where), json=body).is_success

    def fill(self) -> None:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        for number, name in enumerate(NAMES):
            short = name[:200]
            rules = {"pattern": "^none", "definition": {"max-length": 9}}
            self.put("queues", "/", short, arguments={"x-custom": short})
            self.put("exchanges", "/", short, type="topic", arguments={"x-custom": short})
            self.put("policies", "/", short, **rules)
            self.put("operator-policies", "/", short, **rules)
            self.put("vhosts", short, description=short, tags=[short])
            self.put("users", short, password=PASSWORD, tags=f"management,{short}")
            self.put("permissions", "/", short, **everything)
            binding = {"routing_key": short, "arguments": {"x": short}}
            self.api.post(path("bindings", "/", "e", short, "q", short), json=binding)
            self._apply(short)
            if number % 4 == 0:
                self._connect(short)
            if number % 8 == 0:
                self._refuse(short)
        self._report()
        every = 1 if IS_LONG else 13
        for name in NAMES[::every]:
            self.places += [
                addresses.queue("/", name),
                f"{addresses.queue('/', name)}/messages",
                f"{addresses.queue('/', name)}/consumers",
                f"{addresses.queue('/', name)}/bindings",
                f"{addresses.queue('/', name)}/settings",
                addresses.exchange("/", name),
                addresses.vhost(name),
                addresses.user(name),
                f"/policy?vhost=%2F&name={quote(name, safe='')}",
                f"/queues?q={quote(name, safe='')}",
                f"/queues?vhost={quote(name, safe='')}",
                f"/reports?vhost={quote(name, safe='')}&q={quote(name, safe='')}",
            ]
        for row in self.api.get("/api/connections").json():
            self.places.append(addresses.connection(row["name"]))

    def _apply(self, name: str) -> None:
        """A stream whose consumer filters by the name, and a policy that says it."""
        definition = {"dead-letter-exchange": name, "dead-letter-routing-key": name}
        self.put("policies", "/", f"dead {name}"[:200], pattern="^e ", definition=definition)
        self.put(
            "queues",
            "/",
            f"stream {name}"[:200],
            durable=True,
            arguments={"x-queue-type": "stream"},
        )

    def _refuse(self, name: str) -> None:
        """A login that is refused, and a connection that is closed for a reason: both are in the
        log."""
        address = (self.appliance.host, self.appliance.amqp_port)
        with pytest.raises(Exception, match=r""):
            raw.Client.open(address, user=name, password="wrong").socket.close()
        given = {"connection_name": name}
        client = raw.Client.open(address, client_properties=given)
        own = ":".join(map(str, client.socket.getsockname()))
        where = path("connections", f"{own} -> {address[0]}:{address[1]}")
        reason = name.encode("ascii", "backslashreplace").decode().replace("\x7f", "")
        self.api.delete(where, headers={"X-Reason": reason}).raise_for_status()
        client.socket.close()

    def _report(self) -> None:
        """A result of every report whose texts are the names."""
        runs = Runs(self.appliance.data_dir / "reports")
        for report in REPORTS.values():
            run = runs.new(report.name, NAMES[0], 1_700_000_000_000)
            columns: dict[str, list[Any]] = {}
            for column in report.view().columns:
                number: Any = RUN_HOUR if column.kind == "time" else 123_456_789
                texts = [name[:60] for name in NAMES]
                columns[column.name] = texts if column.kind == "text" else [number] * len(NAMES)
            result = runs.path(run.report, run.run_id) / "result"
            result.mkdir()
            pyarrow.parquet.write_table(pyarrow.table(columns), result / "part-0.parquet")
            # From now on the reports process may bring it into its place.
            run.state, run.started_at, run.ended_at = "done", run.asked_at, run.asked_at
            runs.write(run)
            self.places.append(f"/reports/{report.name}")

    def _connect(self, name: str) -> None:
        properties = {
            "connection_name": name,
            "product": name,
            "platform": name,
            name[:100]: {"nested": name},
        }
        client = raw.Client.open(
            (self.appliance.host, self.appliance.amqp_port), client_properties=properties
        )
        self._clients.append(client)
        headers = {name[:100]: name, "deep": {name[:100]: [name, {"x": name}]}}
        client.call(1, "basic.qos", prefetch_count=1)
        for to in (name, name, f"stream {name}"[:200]):
            client.publish(1, "", to, name.encode(), headers=headers, type=name[:200])
        client.fence(1)
        client.call(2, "channel.open")
        client.call(2, "basic.qos", prefetch_count=1)
        client.call(
            2,
            "basic.consume",
            queue=f"stream {name}"[:200],
            consumer_tag=f"{name} {uuid.uuid4().hex[:6]}",
            arguments={"x-stream-filter": [name], "x-stream-match-unfiltered": True},
        )
        client.call(1, "basic.consume", queue=name, consumer_tag=f"{name} {uuid.uuid4().hex[:6]}")

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self.api.close()


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    place: Path = tmp_path_factory.mktemp("names")
    appliance = Appliance("serve", place, problem_grace=0).start()
    made = Attack(appliance)
    made.fill()
    yield made
    made.close()
    appliance.close()


@pytest.fixture
def visitor(browser: Browser, attack: Attack, watch: Watch) -> Iterator[Page]:
    context: BrowserContext = browser.new_context(base_url=attack.appliance.http_url, viewport=WIDE)
    # The long form runs for many minutes, also on a busy machine: one slow page does not end it.
    context.set_default_timeout(12 * TIMEOUT_MS if IS_LONG else TIMEOUT_MS)
    context.add_init_script(REPORT_VIOLATIONS)
    context.add_init_script("window.alert = () => { window.alerted = true; };")
    page = context.new_page()
    page.on("pageerror", lambda error: watch.note(f"exception: {error}"))
    page.on("console", lambda line: watch.note(line.text) if line.type == "error" else None)
    page.on("dialog", lambda dialog: watch.note(f"dialog: {dialog.message}"))
    page.goto("/login")
    page.fill("#username", "guest")
    page.fill("#password", "guest")
    page.click("button[type=submit]")
    page.wait_for_url("**/")
    yield page
    context.close()


def test_no_name_becomes_anything_but_text_on_any_page(
    visitor: Page, attack: Attack, watch: Watch
) -> None:
    watch.allow(404)
    wrong = []
    for place in attack.places:
        visitor.goto(place, wait_until="load")
        for check in (MADE_OF_A_NAME, BARE_BIDI):
            wrong += [f"{place}: {one}" for one in visitor.evaluate(check)]
        if visitor.evaluate("window.alerted") is not None:
            wrong.append(f"{place}: a script of a name ran")
    assert not wrong, "\n".join(wrong)


def test_no_message_becomes_anything_but_text_when_it_is_looked_at(
    visitor: Page, attack: Attack
) -> None:
    wrong = []
    for name in NAMES[::4][:: 1 if IS_LONG else 3]:
        for queue in (name[:200], f"stream {name[:200]}"[:200]):
            visitor.goto(f"{addresses.queue('/', queue)}/messages", wait_until="load")
            visitor.click(
                "text=Show messages" if queue == name[:200] else ".button.primary >> nth=0"
            )
            visitor.wait_for_selector(".messages")
            for check in (MADE_OF_A_NAME, BARE_BIDI):
                wrong += [f"{queue}: {one}" for one in visitor.evaluate(check)]
            assert visitor.evaluate("window.alerted") is None
    assert not wrong, "\n".join(wrong)


def test_no_name_in_a_tooltip_a_legend_or_the_live_log_is_anything_but_text(
    visitor: Page, attack: Attack
) -> None:
    wrong = []
    visitor.goto("/log", wait_until="load")
    attack._refuse(NAMES[1])
    expect(visitor.locator("main")).to_contain_text("script>alert(1)")
    for check in (MADE_OF_A_NAME, BARE_BIDI):
        wrong += visitor.evaluate(check)
    for place in ("/", addresses.queue("/", NAMES[0]), addresses.exchange("/", NAMES[0])):
        visitor.goto(place, wait_until="load")
        visitor.wait_for_selector(".u-over")
        for chart in visitor.locator(".u-over").all():
            chart.hover(force=True)
            for check in (MADE_OF_A_NAME, BARE_BIDI):
                wrong += visitor.evaluate(check)
    assert visitor.evaluate("window.alerted") is None
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_fits_a_page_of_1280_pixels(visitor: Page, attack: Attack, report: str) -> None:
    visitor.set_viewport_size({"width": 1280, "height": 900})
    # One name of ordinary length: the others are as long as names can be.
    visitor.goto(f"/reports/{report}?q=a/b", wait_until="load")
    size = visitor.evaluate(
        "(() => { const box = document.querySelector('.report').parentElement;"
        " return [box.scrollWidth, box.clientWidth]; })()"
    )
    assert size[0] <= size[1] or report in SCROLLED
    assert visitor.evaluate("document.documentElement.scrollWidth") == 1280
