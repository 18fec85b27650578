"""One user: tags, password, permissions, deleting. For administrators."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, figures, limits, permissions
from frontend.asking import FormError, ask, done, names_of, reason_of
from frontend.views.users import TAGS
from management.broker_client import BrokerError


async def user(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """GET: the page. POST `action`: permit, revoke, change, limit, delete."""
    name = name or request.GET.get("name", "")
    if not name:
        raise Http404
    facts: dict[str, Any] = {"section": "users", "form": request.POST, "status": 200}
    facts["expect"] = name if figures.is_plain(name) else "delete"
    if request.method == "POST":
        try:
            return await _act(request, name, facts["expect"])
        except (BrokerError, FormError) as error:
            facts |= {"error": reason_of(error), "status": 400}
    row = await ask(request, "item", noun="users", name=name)
    rows = await ask(request, "list", noun="permissions", user=name)
    is_changing = request.POST.get("action") == "change"
    chosen = request.POST.getlist("tags") if is_changing else row["tags"]
    facts |= {
        "shown": row,
        "key": [name],
        "permissions": rows["items"],
        "limits": await limits.shown(request, "user", name),
        "vhosts": await names_of(request, "vhosts"),
        # Others than those that mean something here are kept, too: saving sets all tags.
        "all_tags": list(dict.fromkeys([*(tag for tag, _ in TAGS if tag), *row["tags"], *chosen])),
        "chosen_tags": chosen,
        "is_self": request.user.name == name,
    }
    return render(request, "user.html", facts, status=facts["status"])


async def _act(request: HttpRequest, name: str, expect: str) -> HttpResponseBase:
    fields = request.POST
    action = fields.get("action")
    if action == "delete":
        if fields.get("confirm", "") != expect:
            raise FormError("The name that was typed is not this user's name. Nothing was done.")
        await ask(request, "user.delete", name=name)
        return done(request, "/users", "The user is deleted and its connections are closed.")
    if action == "limit":
        return done(request, addresses.user(name), await limits.act(request, "user", name))
    if action == "change":
        changes: dict[str, Any] = {"name": name, "tags": fields.getlist("tags")}
        if fields.get("password"):
            changes["password"] = fields["password"]
        else:
            known = await ask(request, "item", noun="users", name=name)
            changes |= {key: known[key] for key in ("password_hash", "hashing_algorithm")}
        await ask(request, "user.put", **changes)
        return done(request, addresses.user(name), "The user is changed.")
    text = await permissions.act(request, fields.get("vhost", ""), name)
    return done(request, addresses.user(name), text)
