"""A request starts no thread: the loop, and so every other request, would wait for it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from management.handler import Handler

SCOPE = {
    "type": "http",
    "method": "OPTIONS",
    "path": "/api/whoami",
    "raw_path": b"/api/whoami",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 2),
}


async def ask(handler: Handler) -> list[dict[str, Any]]:
    """What it sends for `SCOPE`."""
    sent: list[dict[str, Any]] = []
    received = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not received:
            await asyncio.Event().wait()  # the client stays
        return received.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await handler(SCOPE, receive, send)
    return sent


async def test_a_request_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = Handler()
    sent = await ask(handler)  # starts the one thread that serves all
    assert sent[0]["status"] == 200
    started = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    for _ in range(3):
        await ask(handler)
    assert started == []
