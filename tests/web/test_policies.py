"""Policies and limits in the browser: made from a form that says what they would reach."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import Watch
from tests.web.test_sign_in import sign_in


@pytest.fixture
def guest(shared_leveret: Appliance) -> Iterator[httpx.Client]:
    """An HTTP client that takes every policy away in the end."""
    with httpx.Client(
        base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60
    ) as client:
        yield client
        for kind in ("policies", "operator-policies"):
            for row in client.get(f"/api/{kind}/%2F").json():
                client.delete(f"/api/{kind}/%2F/{row['name']}").raise_for_status()


def test_it_makes_changes_and_deletes_a_policy(
    page: Page, guest: httpx.Client, channel: BlockingChannel, queue: str
) -> None:
    page.goto("/policies")
    page.click("text=New policy")
    page.fill("#policy-name", "short")
    page.fill("#policy-pattern", f"^{queue}")
    expect(page.locator("#reach")).to_contain_text("Matches 1 queue:")
    expect(page.locator("#reach")).to_contain_text(queue)
    page.fill("#key-max-length", "5")
    page.fill("#key-message-ttl", "5400000")
    expect(page.locator('[data-read="message-ttl"]')).to_have_text("= 1.5 h")
    page.click("text=Set policy")
    expect(page.locator("#toasts")).to_contain_text("has reached all it applies to")
    expect(page.locator("#table")).to_contain_text("1 queue")
    page.click("#table >> text=short")
    expect(page.locator("#key-max-length")).to_have_value("5")
    page.fill("#key-max-length", "6")
    page.fill("#key-message-ttl", "")
    page.click("text=Save changes")
    expect(page.locator("#toasts")).to_contain_text("is changed")
    assert guest.get("/api/policies/%2F/short").json()["definition"] == {"max-length": 6}
    page.goto(f"/queues/%2F/{queue}/settings")
    expect(page.locator("main")).to_contain_text("policy short")
    holds = page.locator("tr", has_text="max-length")
    expect(holds).to_contain_text("6")
    page.click("main .card-head >> text=short")
    page.click("button:has-text('Delete…')")
    expect(page.locator("#delete")).to_contain_text("It is over 1 queue and 0 exchanges.")
    page.click("#delete button:has-text('Delete policy')")
    expect(page.locator("#toasts")).to_contain_text("removed")
    assert guest.get("/api/policies/%2F/short").status_code == 404


def test_it_says_what_cannot_be(page: Page, guest: httpx.Client, watch: Watch) -> None:
    watch.allow(400)
    page.goto("/policy")
    page.fill("#policy-name", "wrong")
    page.fill("#policy-pattern", "(")
    expect(page.locator("#reach")).to_contain_text("should be regular expression but is invalid")
    page.click("text=Set policy")
    expect(page.locator("[role=alert]")).to_contain_text("has to set something")
    page.fill("#key-max-length", "many")
    page.click("text=Set policy")
    expect(page.locator("[role=alert]")).to_contain_text("max-length must be a whole number.")
    expect(page.locator("#policy-name")).to_have_value("wrong")
    page.fill("#key-max-length", "5")
    page.click("text=Set policy")
    expect(page.locator("[role=alert]")).to_contain_text("pattern should be regular expression")
    page.fill("#policy-pattern", "x")
    page.click("text=Other keys")
    page.fill("#policy-others", '{"colour": "red"}')
    page.click("text=Set policy")
    expect(page.locator("[role=alert]")).to_contain_text("are not recognised policy settings")
    assert guest.get("/api/policies/%2F").json() == []


def test_it_shows_only_the_keys_of_what_a_policy_is_for(page: Page) -> None:
    page.goto("/policy")
    queues, exchanges = page.locator("[data-owner=queue]"), page.locator("[data-owner=exchange]")
    page.select_option("#policy-apply-to", "exchanges")
    expect(queues).to_be_hidden()
    expect(exchanges).to_be_visible()
    page.select_option("#policy-apply-to", "queues")
    expect(queues).to_be_visible()
    expect(exchanges).to_be_hidden()


def test_it_makes_an_operator_policy_that_wins(page: Page, guest: httpx.Client, queue: str) -> None:
    policy = {"pattern": queue, "definition": {"max-length": 50}}
    guest.put("/api/policies/%2F/loose", json=policy).raise_for_status()
    page.goto("/policies")
    page.click("text=New operator policy")
    expect(page.locator("#key-dead-letter-exchange")).to_have_count(0)
    page.fill("#policy-name", "bound")
    page.fill("#policy-pattern", queue)
    page.fill("#key-max-length", "20")
    page.click("text=Set operator policy")
    expect(page.locator("#toasts")).to_contain_text("The operator policy is set")
    page.goto(f"/queues/%2F/{queue}/settings")
    holds = page.locator("tr", has_text="max-length")
    expect(holds.locator("s")).to_have_text("50 messages")
    expect(holds).to_contain_text("operator policy")


def test_it_shows_a_hostile_name_as_text(page: Page, guest: httpx.Client, queue: str) -> None:
    name = "<img src=x onerror=alert(1)>"
    policy = {"pattern": f"^{queue}$", "definition": {"dead-letter-exchange": name}}
    guest.put("/api/policies/%2F/%3Cimg src=x onerror=alert(1)%3E", json=policy)
    for address in ("/policies", f"/queues/%2F/{queue}/settings", "/queues"):
        page.goto(address)
        expect(page.locator("main")).to_contain_text(name)
    page.goto("/policies")
    page.click("#table a:has-text('img')")
    expect(page.locator("h1")).to_have_text(name)
    expect(page.locator("#key-dead-letter-exchange")).to_have_value(name)


@pytest.mark.parametrize(("tag", "may"), [("management", False), ("policymaker", True)])
def test_it_lets_change_who_may(
    make_page: Callable[..., Page], guest: httpx.Client, watch: Watch, tag: str, may: bool
) -> None:
    watch.allow(403)
    user = f"{tag}-{uuid.uuid4().hex[:8]}"
    policy = {"pattern": "^none$", "definition": {"max-length": 50}}
    guest.put("/api/policies/%2F/seen", json=policy).raise_for_status()
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    guest.put(f"/api/users/{user}", json={"password": "secret", "tags": tag}).raise_for_status()
    guest.put(f"/api/permissions/%2F/{user}", json=everything).raise_for_status()
    page = make_page()
    page.goto("/login")
    sign_in(page, user, "secret")
    page.wait_for_url("**/")
    page.goto("/policies")
    expect(page.locator("#table")).to_contain_text("seen")
    expect(page.locator("text=New policy")).to_have_count(int(may))
    expect(page.locator("#table a:has-text('seen')")).to_have_count(int(may))
    expect(page.locator("text=New operator policy")).to_have_count(0)
    page.goto("/policy?vhost=%2F&name=seen")
    expect(page.locator("h1")).to_have_text("seen" if may else "Not allowed")
    page.goto("/policy?operator=1")
    expect(page.locator("h1")).to_have_text("Not allowed")
    # The page of a deleted user tries to open its socket again and complains.
    page.goto("about:blank")
    guest.delete(f"/api/users/{user}").raise_for_status()


@pytest.mark.parametrize(
    ("address", "field", "kind", "name"),
    [
        ("/vhosts/%2F", "max-queues", "vhost-limits", "%2F"),
        ("/users/guest", "max-channels", "user-limits", "guest"),
    ],
)
def test_it_sets_limits(
    page: Page,
    guest: httpx.Client,
    watch: Watch,
    address: str,
    field: str,
    kind: str,
    name: str,
) -> None:
    watch.allow(400)

    def limits() -> Any:
        rows = guest.get(f"/api/{kind}/{name}").json()
        return rows[0]["value"] if rows else {}

    page.goto(address)
    page.fill(f"#limit-{field}", "9000")
    page.click("text=Set limits")
    expect(page.locator("#toasts")).to_contain_text("The limits are set.")
    expect(page.locator(f"#limit-{field}")).to_have_value("9000")
    assert limits() == {field: 9000}
    page.fill(f"#limit-{field}", "lots")
    page.click("text=Set limits")
    expect(page.locator("[role=alert]")).to_contain_text("a whole number, or nothing for no limit")
    page.goto(address)
    page.fill(f"#limit-{field}", "")
    page.click("text=Set limits")
    expect(page.locator("#toasts")).to_contain_text("The limits are set.")
    assert limits() == {}
