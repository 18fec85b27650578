"""Forty names that attack a page, as every kind of name, on every page, in a real browser.

No script of theirs runs, no policy is violated, no element is made of a name, no dialog opens, and
a name that turns text around does so in an element of its own.

Lists show all of the names; pages of one thing are opened for a few of them, and for all with
LEVERET_TEST_NAMES=all in the environment.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from frontend import addresses
from tests.amqp import raw
from tests.api.conftest import path
from tests.appliance import Appliance
from tests.web.conftest import REPORT_VIOLATIONS, TIMEOUT_MS, WIDE, Watch
from tests.web.test_hostile_names import NAMES as ALL_NAMES

# The last ones, `.` and `..`, cannot be sent in a path.
NAMES = ALL_NAMES[:-2]
PASSWORD = "a password"
PAGES = [
    *("/", "/problems", "/queues", "/exchanges", "/connections", "/channels", "/consumers"),
    *("/policies", "/definitions", "/vhosts", "/users", "/node", "/log", "/reports", "/console"),
    *("/connect", "/api-docs", "/policy"),
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
            if number % 4 == 0:
                self._connect(short)
        every = 1 if os.environ.get("LEVERET_TEST_NAMES") == "all" else 13
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
        client.publish(1, "", name, name.encode(), headers={name[:100]: name}, type=name[:200])
        client.fence(1)
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
    context.set_default_timeout(TIMEOUT_MS)
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
