"""`python -m tests.bench.pages`: what pages cost in a real Chromium at 10,000 queues.

For each page (one queue has 10,000 consumers and 5,000 bindings): time until its load event and its
rows are there, at the first opening and the median of the next ones; requests that reached the
server, of both. Then of a minute in which the main pages stay open and nothing happens: processor
time of each main thread (Chromium's TaskDuration in thread ticks, so that other processes of the
machine do not count), bytes pushed on the live socket (before compression), requests.
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
import pika
from playwright.sync_api import Browser, Page, sync_playwright

from tests.appliance import Appliance
from tests.web.conftest import CHROMIUM, FLAGS
from tests.web.network import Requests

PAGES = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queues/%2F/queue-00000",
    "connections": "/connections",
}
OTHERS = {
    "consumers": "/queues/%2F/queue-00000/consumers",
    "bindings": "/queues/%2F/queue-00000/bindings",
    "exchanges": "/exchanges",
    "exchange": "/exchanges/%2F/amq.topic",
    "channels": "/channels",
    "all consumers": "/consumers",
    "policies": "/policies",
    "vhosts": "/vhosts",
    "vhost": "/vhosts/%2F",
    "users": "/users",
    "node": "/node",
    "problems": "/problems",
    "reports": "/reports",
    "definitions": "/definitions",
    "api docs": "/api-docs",
}
"""Opened, but not left open."""
CONSUMERS = 10_000
BINDINGS = 5_000
SETTLED_S = 5.0


def declare(appliance: Appliance, queues: int) -> None:
    """That many durable queues in the default vhost; the first one with many bindings."""
    kind = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    bound = {
        "vhost": "/",
        "source": "amq.topic",
        "destination": "queue-00000",
        "destination_type": "queue",
        "arguments": {},
    }
    body = {
        "queues": [{"name": f"queue-{number:05}", **kind} for number in range(queues)],
        "bindings": [{**bound, "routing_key": f"key.{number}"} for number in range(BINDINGS)],
    }
    login = ("guest", "guest")
    with httpx.Client(base_url=appliance.http_url, auth=login, timeout=300) as api:
        api.post("/api/definitions", json=body).raise_for_status()


def consume(appliance: Appliance) -> pika.BlockingConnection:
    """A connection with many consumers on the first queue."""
    connection = pika.BlockingConnection(pika.URLParameters(f"{appliance.amqp_url}?heartbeat=0"))
    channel = connection.channel()
    for number in range(CONSUMERS):
        channel.basic_consume("queue-00000", _ignore, consumer_tag=f"worker-{number:05}")
    return connection


def _ignore(*_: Any) -> None:
    pass


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


class Opened:
    """A page that stays open, with what it has cost so far."""

    def __init__(self, page: Page, name: str) -> None:
        self.name = name
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._requests = Requests(self._session)
        self._pushed: list[int] = []
        self._before = 0.0
        page.on(
            "websocket",
            lambda socket: socket.on("framereceived", lambda data: self._pushed.append(len(data))),
        )

    def open(self, url: str, rounds: int) -> None:
        """Opens it again and again and prints how long that took."""
        times, counts = [], []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            self._page.goto(url, wait_until="load")
            if self.name == "queues":
                # Not by text: Playwright's search through 1,200 cells would be counted, too.
                self._page.wait_for_selector("#table tbody tr:nth-child(100)")
            times.append((time.perf_counter() - began) * 1000)
            self._page.wait_for_load_state("networkidle")
            counts.append(self._requests.take())
        print(
            f"{self.name:14} first {times[0]:5.0f} ms, {counts[0]:2} requests; "
            f"next {statistics.median(times[1:]):5.0f} ms ({min(times[1:]):.0f} to "
            f"{max(times[1:]):.0f}), {max(counts[1:])} requests",
            flush=True,
        )

    def begin(self) -> None:
        """The idle time begins."""
        self._requests.take()
        self._pushed.clear()
        self._before = self._main_thread_seconds()

    def end(self, seconds: float) -> None:
        """The idle time is over: prints what it cost."""
        busy = self._main_thread_seconds() - self._before
        print(
            f"{self.name:14} in {seconds:g} s idle: main thread {busy:5.2f} s, "
            f"{sum(self._pushed) / 1024:6.1f} KB in {len(self._pushed)} messages, "
            f"{self._requests.take()} requests",
            flush=True,
        )

    def _main_thread_seconds(self) -> float:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


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
            opened = []
            for name, path in PAGES.items():
                # A context of its own has a process and a cache of its own.
                page = Opened(browser.new_context(storage_state=state).new_page(), name)
                page.open(appliance.http_url + path, options.rounds)
                opened.append(page)
            with consume(appliance):
                for name, path in OTHERS.items():
                    context = browser.new_context(storage_state=state)
                    Opened(context.new_page(), name).open(appliance.http_url + path, options.rounds)
                    context.close()
            time.sleep(SETTLED_S)
            for page in opened:
                page.begin()
            # By Playwright's clock: events come in only while it waits.
            browser.contexts[0].pages[0].wait_for_timeout(options.idle * 1000)
            for page in opened:
                page.end(options.idle)
        finally:
            browser.close()
            appliance.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
