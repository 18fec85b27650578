"""`python -m tests.bench.pages`: what pages cost in a real Chromium at 10,000 queues.

For each page: time until its load event and its rows are there, at the first opening and the median
of the next ones; requests that reached the server, of both. Of a minute of the idle tab: work of
the main thread (Chromium's TaskDuration), bytes pushed on the live socket (before compression),
requests.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.appliance import Appliance
from tests.web.conftest import CHROMIUM, FLAGS
from tests.web.network import Requests

PAGES = {"overview": "/", "queues": "/queues"}


def declare(appliance: Appliance, queues: int) -> None:
    """That many durable queues in the default vhost."""
    kind = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    body = {"queues": [{"name": f"queue-{number:05}", **kind} for number in range(queues)]}
    login = ("guest", "guest")
    with httpx.Client(base_url=appliance.http_url, auth=login, timeout=300) as api:
        api.post("/api/definitions", json=body).raise_for_status()


def sign_in(browser: Browser, url: str) -> Any:
    """The cookies of guest."""
    page = browser.new_page()
    page.goto(f"{url}/login")
    page.fill("#username", "guest")
    page.fill("#password", "guest")
    page.click("button[type=submit]")
    page.wait_for_url(f"{url}/")
    state = page.context.storage_state()
    page.context.close()
    return state


def main_thread_seconds(page: Page, session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def measure(page: Page, name: str, url: str, rounds: int, idle_s: float) -> None:
    """Prints one line for a page."""
    session = page.context.new_cdp_session(page)
    requests = Requests(session)
    pushed: list[int] = []
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda data: pushed.append(len(data))),
    )
    times, counts = [], []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        page.goto(url, wait_until="load")
        if name == "queues":
            page.wait_for_selector("text=queue-00000")
        times.append((time.perf_counter() - began) * 1000)
        page.wait_for_load_state("networkidle")
        counts.append(requests.take())
    session.send("Performance.enable")
    page.wait_for_timeout(5_000)
    pushed.clear()
    before = main_thread_seconds(page, session)
    page.wait_for_timeout(idle_s * 1000)
    busy = main_thread_seconds(page, session) - before
    print(
        f"{name:10} first {times[0]:5.0f} ms, {counts[0]} requests; "
        f"next {statistics.median(times[1:]):5.0f} ms, {max(counts[1:])} requests; "
        f"in {idle_s:g} s idle: main thread {busy:5.2f} s, "
        f"{sum(pushed) / 1024:6.1f} KB in {len(pushed)} messages, {requests.take()} requests",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5, help="openings after the first")
    parser.add_argument("--idle", type=float, default=60, help="seconds of the idle tab")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        appliance = Appliance("serve", Path(directory)).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            declare(appliance, options.queues)
            state = sign_in(browser, appliance.http_url)
            for name, path in PAGES.items():
                context = browser.new_context(storage_state=state)
                url = appliance.http_url + path
                measure(context.new_page(), name, url, options.rounds, options.idle)
                context.close()
        finally:
            browser.close()
            appliance.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
