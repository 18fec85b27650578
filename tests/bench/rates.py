"""`python -m tests.bench.rates`: whether pages and API show a constant load as it is.

At 10,000 queues a load publishes and consumes at a constant rate for a minute. Meanwhile pages in
Chromium are read four times a second (tiles, head, legends, charts) and the API once. Prints for
each place the number of readings, how many are more than 5 % beside what the load did, and the
largest error; the status is 1 if any is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import httpx
from playwright.sync_api import Browser, expect, sync_playwright

from tests.appliance import Appliance
from tests.bench.pages import sign_in
from tests.web.conftest import CHROMIUM, FLAGS
from tests.web.constant_load import (
    READ,
    STEADY,
    STEADY_EVERY,
    Reading,
    Truth,
    answered,
    constant_load,
    names,
    shown,
)

PAGES = {
    "overview": ("/", 1.0),
    "virtual host": ("/vhosts/%2F", 1.0),
    "queue": (f"/queues/%2F/{STEADY}", 1 / STEADY_EVERY),
    "list of queues": (f"/queues?q={STEADY}", 1 / STEADY_EVERY),
}
"""Address of each page, and the share of the load that it is about."""

AS_TABLE = ("overview", "queue")
"""Pages whose charts are read as tables; on the others they are drawn."""

WARM_UP_S = 7.0
"""Until all windows of the rates are filled."""


def declare(appliance: Appliance, queues: int) -> None:
    kind = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    body = {"queues": [{"name": name, **kind} for name in names(queues)]}
    login = ("guest", "guest")
    with httpx.Client(base_url=appliance.http_url, auth=login, timeout=300) as api:
        api.post("/api/definitions", json=body).raise_for_status()


def read(appliance: Appliance, browser: Browser, seconds: float) -> list[Reading]:
    """Everything that pages and API say in so many seconds while the load runs."""
    context = browser.new_context(storage_state=sign_in(browser, appliance.http_url))
    pages = {}
    for title, (address, share) in PAGES.items():
        page = context.new_page()
        page.goto(appliance.http_url + address)
        expect(page.locator("#live-state")).to_have_text("live")
        pages[title] = page, share
    time.sleep(WARM_UP_S)
    for title, (page, _) in pages.items():
        page.evaluate(READ, title in AS_TABLE)
    found: list[Reading] = []
    until = time.monotonic() + seconds
    login = ("guest", "guest")
    with httpx.Client(base_url=appliance.http_url, auth=login, timeout=30) as api:
        while time.monotonic() < until:
            found += answered(api)
            time.sleep(1)
    for title, (page, share) in pages.items():
        found += shown(page, title, share)
    context.close()
    return found


def run(queues: int, rate: int, seconds: float, browser: Browser, directory: Path) -> int:
    """Prints a line for each place; returns how many readings are off."""
    appliance = Appliance("serve", directory).start()
    try:
        declare(appliance, queues)
        notes = directory / "notes"
        with constant_load(appliance.amqp_url, queues, rate, notes):
            found = read(appliance, browser, seconds)
        truth = Truth(notes)
        places: dict[str, list[Reading]] = defaultdict(list)
        for reading in found:
            places[f"{reading.where}: {reading.name}"].append(reading)
        for place, readings in sorted(places.items()):
            off = sum(truth.is_off(reading) for reading in readings)
            values = [reading.value for reading in readings]
            error = max(truth.error(reading) for reading in readings) * 100
            print(
                f"{place:55} {len(readings):5} readings, {min(values):8.1f} to {max(values):8.1f}, "
                f"{off:4} off, largest error {error:4.1f} %",
                flush=True,
            )
        return sum(truth.is_off(reading) for reading in found)
    finally:
        appliance.stop()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rates", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            place = Path(directory)
            off = run(options.queues, options.rate, options.seconds, browser, place)
        finally:
            browser.close()
    return 1 if off else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
