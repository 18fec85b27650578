"""The node: distance to each limit, listeners, and every setting with its value."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.settings.bounds import FIXED
from broker.settings.config import SECTIONS, settings
from frontend import figures
from frontend.asking import ask
from management.appliance import config


async def node(request: HttpRequest) -> HttpResponseBase:
    """For users with tag monitoring or administrator; the broker refuses others."""
    row = (await ask(request, "nodes"))[0]
    overview = await ask(request, "overview")
    facts = {
        "section": "node",
        "node": row,
        "overview": overview,
        "gauges": _gauges(row),
        "settings": _settings(row["overrides"]),
        "fixed": [{**row._asdict(), "value": f"{row.value:,}"} for row in FIXED],
    }
    return render(request, "node.html", facts)


def _gauges(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What the node uses of what it has, each with a tone near the limit."""
    used_disk = row["disk_total"] - row["disk_free"]
    found = [
        ("Memory", figures.size, row["mem_used"], row["mem_limit"], "used; publishing stops at"),
        ("Disk", figures.size, used_disk, row["disk_total"], "used of"),
        ("File descriptors", figures.count, row["fd_used"], row["fd_total"], "open of"),
        ("Connections", figures.count, row["sockets_used"], row["sockets_total"], "open; room for"),
        ("Processor", _percent, row["cpu_used"] * 100, 100, "of one core, at most"),
    ]
    gauges = []
    for label, written, part, whole, words in found:
        share = part / whole if whole else 0.0
        tone = "bad" if share > 0.95 else "warn" if share > 0.8 else ""
        note = f"{words} {written(whole)}"
        gauges.append(
            {"label": label, "value": written(part), "note": note}
            | {"part": part, "whole": whole, "tone": tone}
        )
    return gauges


def _percent(value: float) -> str:
    return f"{value:.0f} %"


def _settings(overrides: dict[str, Any]) -> list[dict[str, Any]]:
    """The table of settings by section, with what was changed until the next start; a secret is
    never shown."""
    groups = []
    known = config()
    for section, title in SECTIONS.items():
        rows = []
        for item in settings():
            if item.section != section:
                continue
            configured = getattr(known, item.name, None)
            changed = overrides.get(item.name)
            value = configured if changed is None else changed["value"]
            is_default = value == item.default
            rows.append(
                {
                    "name": item.name,
                    "help": item.text,
                    "value": _shown(item.public(value), item.kind),
                    "default": _shown(item.default, item.kind),
                    "is_default": is_default,
                    "configured": (
                        None if changed is None else _shown(item.public(configured), item.kind)
                    ),
                    "variable": item.variable,
                    "reload": item.reload,
                }
            )
        groups.append({"title": title, "rows": rows})
    return groups


def _shown(value: Any, kind: str) -> str:
    if kind == "secret":
        return "not shown" if value else "none"
    if value is None or value == () or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if kind == "size" or (kind == "memory" and isinstance(value, int)):
        return figures.size(value)
    if kind == "time":
        return figures.duration(value)
    if kind == "count":
        return f"{value:,}"
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    return str(value)
