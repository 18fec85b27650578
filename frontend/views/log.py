"""The broker's log: the newest lines, and those that come while the page is open."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.process.logs import ENTRIES_KEPT
from frontend.asking import ask

TONES = {"critical": "bad", "error": "bad", "warning": "warn"}


async def log(request: HttpRequest) -> HttpResponseBase:
    """For users with tag monitoring or administrator; the broker refuses others."""
    answer = await ask(request, "log", count=ENTRIES_KEPT)
    facts = {
        "section": "log",
        "lines": [_shown(entry) for entry in reversed(answer["entries"])],
        "newest": answer["newest"],
        "kept": ENTRIES_KEPT,
    }
    return render(request, "log.html", facts)


def _shown(entry: list[Any]) -> dict[str, Any]:
    _, at, level, source, text = entry
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    return {"when": when, "level": level, "source": source, "text": text, "tone": TONES.get(level)}
