"""Limits of virtual hosts and of users: showing them and taking them from a form."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from frontend.asking import FormError, ask

LABELS = {
    "vhost": {"max-connections": "Connections at most", "max-queues": "Queues at most"},
    "user": {"max-connections": "Connections at most", "max-channels": "Channels at most"},
}
LIMIT_MAX = 2**31


async def shown(request: HttpRequest, of: str, name: str) -> list[dict[str, Any]]:
    """{name, label, value} of each limit of a `vhost` or a `user`; None is no limit."""
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
        if text and not (text.isascii() and text.isdigit() and int(text) < LIMIT_MAX):
            raise FormError(f"{label}: a whole number, or nothing for no limit.")
        wanted[key] = int(text) if text else -1
    for key, value in wanted.items():
        await ask(request, f"{of}-limit.put", **{of: name}, name=key, value=value)
    return "The limits are set."
