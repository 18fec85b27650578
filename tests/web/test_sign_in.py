"""Signing in and out in the browser."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.web.conftest import Watch


def sign_in(page: Page, name: str = "guest", password: str = "guest") -> None:
    page.fill("#username", name)
    page.fill("#password", password)
    page.click("button[type=submit]")


def test_it_leads_to_the_page_one_wanted(make_page: Callable[..., Page]) -> None:
    page = make_page()
    page.goto("/queues?sort=name")
    expect(page).to_have_title("Sign in · Leveret")
    sign_in(page)
    page.wait_for_url("**/queues?sort=name")
    expect(page.locator("h1")).to_have_text("Queues")


def test_it_says_that_the_password_is_wrong(make_page: Callable[..., Page], watch: Watch) -> None:
    watch.allow(401)
    page = make_page()
    page.goto("/login")
    sign_in(page, password="wrong")
    expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong")
    expect(page.locator("#username")).to_have_value("guest")


def test_it_shows_the_password_on_request(make_page: Callable[..., Page]) -> None:
    page = make_page()
    page.goto("/login")
    page.fill("#password", "guest")
    expect(page.locator("#password")).to_have_attribute("type", "password")
    page.get_by_label("show the password").check()
    expect(page.locator("#password")).to_have_attribute("type", "text")
    page.fill("#username", "guest")
    page.click("button[type=submit]")
    expect(page).to_have_title("Overview · Leveret")


def test_it_leads_nowhere_else_after_signing_in(make_page: Callable[..., Page]) -> None:
    page = make_page()
    page.goto("/login?next=//evil.example/")
    sign_in(page)
    expect(page).to_have_title("Overview · Leveret")


def test_it_signs_out_every_tab(make_page: Callable[..., Page]) -> None:
    page = make_page()
    page.goto("/login")
    sign_in(page)
    other = page.context.new_page()
    other.goto("/queues")
    expect(other.locator("#live-state")).to_have_text("live")
    page.click("#user-menu summary")
    page.click("text=Sign out")
    expect(page).to_have_title("Sign in · Leveret")
    # The other tab's live socket is closed, and it goes to the form by itself.
    expect(other).to_have_title("Sign in · Leveret")
