"""The page of definitions: export, import, and what the page says about both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from tests.appliance import Appliance
from tests.web.conftest import Watch
from tests.web.test_sign_in import sign_in

HOSTILE = "web-<img src=x onerror=alert(1)>"
DEFINITIONS = {
    "queues": [
        {"vhost": "/", "name": HOSTILE},
        {"vhost": "/", "name": "web-jms", "arguments": {"x-queue-type": "jms"}},
    ],
    "parameters": [
        {
            "component": "web-foreign",
            "vhost": "/",
            "name": "web-parameter",
            "value": {"uri": "amqp://u:s3cret@h"},
        }
    ],
}


def choose(page: Page, directory: Path, definitions: object) -> None:
    file = directory / "definitions.json"
    file.write_text(json.dumps(definitions))
    page.set_input_files("#import-file", file)


def test_a_file_is_checked_and_then_imported(
    page: Page, tmp_path: Path, shared_leveret: Appliance
) -> None:
    page.goto("/definitions")
    choose(page, tmp_path, DEFINITIONS)
    page.click("text=Check only")
    expect(page.locator("#outcome")).to_contain_text("2 to create, 0 to change")
    expect(page.locator("#difference")).to_contain_text(HOSTILE)
    expect(page.locator("#left-out")).to_contain_text("there is no queue type 'jms' here")
    assert "s3cret" not in page.content()
    choose(page, tmp_path, DEFINITIONS)
    page.click("#import button[value=import]")
    expect(page.locator("#outcome")).to_contain_text("2 created")
    expect(page.locator("#inactive")).to_contain_text("this broker does not run it")
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        names = [row["name"] for row in api.get("/api/queues").json()]
        assert HOSTILE in names
        assert "web-jms" not in names
        api.delete("/api/parameters/web-foreign/%2F/web-parameter").raise_for_status()
        vhost_queue = f"/api/queues/%2F/{HOSTILE}"
        api.delete(vhost_queue).raise_for_status()


def test_a_wrong_file_changes_nothing_and_says_why(
    page: Page, tmp_path: Path, watch: Watch
) -> None:
    watch.allow(400)
    page.goto("/definitions")
    choose(page, tmp_path, {"queues": [{"vhost": "/"}]})
    page.click("#import button[value=import]")
    expect(page.locator("#refused")).to_contain_text("queues[0]: 'name' is missing")
    expect(page.locator("#refused")).to_contain_text("Nothing was changed.")


def test_it_shows_what_another_broker_cannot_read_and_downloads_the_rest(page: Page) -> None:
    page.goto("/definitions")
    page.select_option("#export-for", "rabbitmq-3")
    page.click("text=Show what is left out")
    expect(page.locator("#omitted")).to_contain_text("argon2id cannot be read there")
    expect(page.locator("#export-for")).to_have_value("rabbitmq-3")
    with page.expect_download() as download:
        page.click("text=Download")
    assert download.value.suggested_filename == "definitions.json"
    document = json.loads(Path(download.value.path()).read_text())
    assert "argon2" not in json.dumps(document["users"])


def test_only_an_administrator_finds_it(
    make_page: Callable[..., Page], shared_leveret: Appliance, watch: Watch
) -> None:
    watch.allow(403)
    with httpx.Client(base_url=shared_leveret.http_url, auth=("guest", "guest"), timeout=60) as api:
        user = {"password": "secret", "tags": "policymaker"}
        api.put("/api/users/web-policymaker", json=user).raise_for_status()
    own = make_page()
    own.goto("/login")
    sign_in(own, "web-policymaker", "secret")
    expect(own.locator("[data-menu=definitions]")).to_have_count(0)
    own.goto("/definitions")
    expect(own.locator("h1")).to_have_text("Not allowed")
