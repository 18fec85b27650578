"""Limits of virtual hosts and of users: showing them and taking them from a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from frontend.asking import FormError, ask, digits_in

LABELS = {
    "vhost": {"max-connections": "Connections at most", "max-queues": "Queues at most"},
    "user": {"max-connections": "Connections at most", "max-channels": "Channels at most"},
}
LIMIT_MAX = 2**31


async def shown(request: HttpRequest, of: str, name: str) -> list[dict[str, Any]]:
    """{name, label, value} of each limit of a `vhost` or a `user`, or what was typed if the form
    was refused; None is no limit."""
    if request.POST.get("action") == "limit":
        found: Mapping[str, Any] = request.POST
    else:
        rows = (await ask(request, "list", noun=f"{of}-limits", **{of: name}))["items"]
        found = rows[0]["value"] if rows else {}
    return [
        {"name": key, "label": label, "value": found.get(key)} for key, label in LABELS[of].items()
    ]


async def act(request: HttpRequest, of: str, name: str) -> str:
    """Sets what the form says. Returns what was done; raises FormError."""
    wanted = {}
    for key, label in LABELS[of].items():
        text = request.POST.get(key, "").strip()
        number = digits_in(text) if text else -1
        if number is None or number >= LIMIT_MAX:
            raise FormError(f"{label}: a whole number, or nothing for no limit.")
        wanted[key] = number
    for key, value in wanted.items():
        await ask(request, f"{of}-limit.put", **{of: name}, name=key, value=value)
    return "The limits are set."
