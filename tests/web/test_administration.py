"""Users, virtual hosts and permissions in the browser; what one may not do is not there."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import pika
import pytest
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import Watch
from tests.web.test_sign_in import sign_in


@pytest.fixture
def monitor(page: Page) -> str:
    """A user with the tag management, made in the browser; password `secret`."""
    name = f"user-{uuid.uuid4().hex[:8]}"
    page.goto("/users")
    page.click("text=New user")
    page.fill("#user-name", name)
    page.fill("#user-password", "secret")
    page.select_option("#user-tag", "management")
    page.click("text=Create user")
    expect(page.locator("#toasts")).to_contain_text("The user is there.")
    return name


def test_it_gives_permissions_and_takes_them_back(page: Page, monitor: str) -> None:
    page.fill("#permit-configure", "^mine[.]")
    page.click("text=Set permissions")
    expect(page.locator("table")).to_contain_text("^mine[.]")
    page.click("text=Take back")
    expect(page.locator("main")).to_contain_text("This user has no permission in any virtual host.")


def test_a_user_sees_only_what_it_may(
    page: Page, make_page: Callable[..., Page], monitor: str, watch: Watch
) -> None:
    watch.allow(403)
    page.click("text=Set permissions")
    expect(page.locator("#toasts")).to_contain_text("permissions are set")
    own = make_page()
    own.goto("/login")
    sign_in(own, monitor, "secret")
    expect(own).to_have_title("Overview · Leveret")
    expect(own.locator("[data-menu=users]")).to_have_count(0)
    expect(own.locator("[data-menu=node]")).to_have_count(0)
    for path in ("/users", "/node", "/users/guest"):
        own.goto(path)
        expect(own.locator("h1")).to_have_text("Not allowed")
        expect(own.locator(".sentence")).to_contain_text("This page ")
    own.goto("/queues?vhost=elsewhere")
    expect(own.locator(".sentence")).to_contain_text("This needs a permission in its virtual host")
    for path in ("/queues", "/connections", "/vhosts", "/console", "/connect"):
        own.goto(path)
        expect(own.locator("#live-state")).to_have_text("live")
    # The totals of a virtual host that it may look into are live, too: behind the page's own (1).
    frames: list[dict[str, Any]] = []
    own.on(
        "websocket",
        lambda opened: opened.on("framereceived", lambda data: frames.append(json.loads(data))),
    )
    own.goto("/vhosts/%2F")
    while not (of_totals := [one for one in frames if one["id"] == 2]):
        own.wait_for_timeout(20)  # lets Playwright hand over what came
    assert of_totals[0]["event"] == "start"
    expect(own.locator("#ended")).to_have_count(0)


def test_lists_offer_a_monitoring_user_only_the_vhosts_it_may_look_into(
    make_page: Callable[..., Page], shared_leveret: Appliance
) -> None:
    suffix = uuid.uuid4().hex[:8]
    user, open_one, closed = f"watcher-{suffix}", f"open-{suffix}", f"closed-{suffix}"
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        for vhost in (open_one, closed):
            api.put(f"/api/vhosts/{vhost}", json={}).raise_for_status()
        given = {"password": "secret", "tags": "monitoring"}
        api.put(f"/api/users/{user}", json=given).raise_for_status()
        for vhost in ("%2F", open_one):
            api.put(f"/api/permissions/{vhost}/{user}", json=everything).raise_for_status()
        own = make_page()
        own.goto("/login")
        sign_in(own, user, "secret")
        for path in ("/queues", "/connections", "/problems"):
            own.goto(path)
            offered = own.locator("#filter select[name=vhost], .toolbar select[name=vhost]").first
            expect(offered.locator("option")).to_have_count(3)
            expect(offered).to_contain_text(open_one)
            assert closed not in own.content()
        # Before its session ends: a page on its way to the form may not answer the browser's close.
        own.close()
        for vhost in (open_one, closed):
            api.delete(f"/api/vhosts/{vhost}").raise_for_status()
        api.delete(f"/api/users/{user}").raise_for_status()


def test_a_deleted_user_is_signed_out_at_once(
    page: Page, make_page: Callable[..., Page], monitor: str
) -> None:
    own = make_page()
    own.goto("/login")
    sign_in(own, monitor, "secret")
    expect(own.locator("#live-state")).to_have_text("live")
    page.click("button:has-text('Delete…')")
    page.fill("#delete-confirm", monitor)
    page.click("#delete [data-acts]")
    expect(own).to_have_title("Sign in · Leveret")


def test_it_makes_and_deletes_a_virtual_host(page: Page) -> None:
    name = f"shop/{uuid.uuid4().hex[:8]}"
    page.goto("/vhosts")
    page.click("text=New virtual host")
    page.fill("#vhost-name", name)
    page.fill("#vhost-description", "The shop <b>")
    page.click("#create-vhost button:has-text('Create')")
    page.click(f"#table >> text={name}")
    expect(page.locator("h1")).to_have_text(name)
    expect(page.locator("#live-state")).to_have_text("live")
    page.click("button:has-text('Edit…')")
    page.fill("#edit-description", "The new shop")
    page.select_option("#vhost-queue-type", "stream")
    page.click("#edit button:has-text('Save')")
    expect(page.locator("#toasts")).to_contain_text("The virtual host is changed.")
    expect(page.locator("main")).to_contain_text("The new shop")
    expect(page.locator("main")).to_contain_text("without a type are of type stream")
    page.click("button:has-text('Delete…')")
    page.fill("#delete-confirm", name)
    page.click("#delete [data-acts]")
    expect(page.locator("#toasts")).to_contain_text("deleted")


def test_it_closes_a_connection_with_a_reason(page: Page, shared_leveret: Appliance) -> None:
    mark = f"client-{uuid.uuid4().hex[:8]}"
    parameters = pika.ConnectionParameters(
        shared_leveret.host,
        shared_leveret.amqp_port,
        client_properties={"connection_name": mark},
    )
    connection = pika.BlockingConnection(parameters)
    page.goto("/connections")
    page.click(f"#table >> text={mark}")
    expect(page.locator("#live-state")).to_have_text("live")
    page.click("button:has-text('Close…')")
    page.fill("#close-reason", "closed by a test")
    page.click("#close button:has-text('Close connection')")
    expect(page.locator("#toasts")).to_contain_text("The connection is closed.")
    with pytest.raises(pika.exceptions.ConnectionClosed) as closed:
        connection.process_data_events(time_limit=5)
    assert (closed.value.reply_code, "closed by a test" in closed.value.reply_text) == (320, True)


def test_the_node_page_tells_of_shared_bodies(page: Page, shared_leveret: Appliance) -> None:
    with pika.BlockingConnection(pika.URLParameters(shared_leveret.amqp_url)) as connection:
        channel = connection.channel()
        names = [f"web.shared.{uuid.uuid4().hex[:8]}" for _ in range(2)]
        for name in names:
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.direct", names[0])
        channel.confirm_delivery()
        channel.basic_publish(
            "amq.direct", names[0], bytes(5000), pika.BasicProperties(delivery_mode=2)
        )
        page.goto("/node")
        card = page.locator("#shared-bodies")
        expect(card).to_contain_text("A body of 4 KiB or more", ignore_case=True)
        expect(card).to_contain_text(" refer to ")
        expect(card).to_contain_text("from the page cache")
        expect(card).to_contain_text("in memory (ram)")
        for name in names:
            channel.queue_delete(name)
