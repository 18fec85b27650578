"""The forms that give and take permissions, on the pages of a user and of a virtual host."""

from __future__ import annotations

from django.http import HttpRequest

from frontend.asking import ask

KINDS = ("configure", "write", "read")


async def act(request: HttpRequest, vhost: str, user: str) -> str:
    """Do what the form's `action` says, `permit` or `revoke`; return what was done, in words."""
    if request.POST.get("action") == "revoke":
        await ask(request, "permission.delete", vhost=vhost, user=user)
        return "The permissions are taken back."
    patterns = {kind: request.POST.get(kind, "") for kind in KINDS}
    await ask(request, "permission.put", vhost=vhost, user=user, **patterns)
    return "The permissions are set."
