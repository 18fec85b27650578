"""Federation in the browser: an upstream made from a form, its link watched, changed, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import Watch

PATIENCE_MS = 60_000


@pytest.fixture
def upstream(shared_leveret: Appliance) -> Iterator[str]:
    """A name of the test's own; what it makes is removed in the end."""
    name = f"web-{uuid.uuid4().hex[:8]}"
    yield name
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        api.delete(f"/api/policies/%2F/{name}")
        api.delete(f"/api/parameters/federation-upstream-set/%2F/{name}")
        api.delete(f"/api/parameters/federation-upstream/%2F/{name}")
        api.delete(f"/api/exchanges/%2F/{name}")


def test_it_makes_watches_changes_and_deletes_an_upstream(
    page: Page, upstream: str, shared_leveret: Appliance
) -> None:
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        api.put(f"/api/exchanges/%2F/{upstream}", json={"type": "topic"}).raise_for_status()
    page.goto("/federation")
    page.click("text=New upstream")
    page.fill("#upstream-name", upstream)
    page.fill("#key-uri", "amqp://guest:s3cret-word@127.0.0.1:1")
    page.fill("#key-max-hops", "2")
    page.click("text=Test connection")
    steps = page.locator("#steps")
    expect(steps).to_contain_text("Upstream: connection", timeout=PATIENCE_MS)
    expect(steps).to_contain_text("Connection refused")
    expect(page.locator("#key-max-hops")).to_have_value("2")
    page.click("button:has-text('Save')")
    expect(page.locator("#upstreams")).to_contain_text(upstream)
    page.goto("/policy")
    page.fill("#policy-name", upstream)
    page.fill("#policy-pattern", f"^{upstream}$")
    page.select_option("#policy-apply-to", "exchanges")
    page.fill("#key-federation-upstream", upstream)
    page.click("button:has-text('Set policy')")
    page.goto("/federation")
    row = page.locator("#links tr", has_text=upstream)
    expect(row).to_contain_text("Connection refused", timeout=PATIENCE_MS)
    row.locator("text=details").click()
    expect(page.locator("#link .table")).to_contain_text("Connection refused")
    page.click("#link button:has-text('Restart')")
    expect(page.locator("#toasts")).to_contain_text("begins anew")
    page.goto("/federation")
    page.locator("#upstreams a", has_text=upstream).click()
    expect(page.locator("#key-uri")).to_have_value("amqp://guest:***@127.0.0.1:1")
    expect(page.locator("#key-max-hops")).to_have_value("2")
    assert "s3cret-word" not in page.content()
    page.fill("#key-uri", "amqp://")
    page.fill("#key-exchange", "amq.topic")
    page.click("text=Save changes")
    expect(row).to_contain_text("running", timeout=PATIENCE_MS)
    expect(row).to_contain_text("amq.topic")
    page.locator("#upstreams a", has_text=upstream).click()
    page.click("button:has-text('Delete…')")
    page.click("#delete button:has-text('Delete upstream')")
    expect(page.locator("#upstreams")).not_to_contain_text(upstream)
    expect(page.locator("#links")).not_to_contain_text(upstream)


def test_it_says_what_cannot_be(page: Page, upstream: str, watch: Watch) -> None:
    watch.allow(400)
    page.goto("/upstream")
    page.fill("#upstream-name", upstream)
    page.fill("#key-uri", "gopher://x")
    page.fill("#key-prefetch-count", "many")
    page.click("button:has-text('Save')")
    alert = page.locator("[role=alert]")
    expect(alert).to_contain_text("prefetch-count must be a whole number.")
    page.fill("#key-prefetch-count", "10")
    page.click("button:has-text('Save')")
    expect(alert).to_contain_text("the scheme is amqp or amqps, not 'gopher'")
    page.goto("/upstream?set=1")
    page.fill("#upstream-name", upstream)
    page.fill("#entries", "[{}]")
    page.click("button:has-text('Save')")
    expect(alert).to_contain_text("should be a list of objects that name an upstream")
