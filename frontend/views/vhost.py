"""One virtual host: its totals, who may do what in it, deleting it."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, charts, figures, limits, permissions
from frontend.asking import FormError, ask, done, names_of, reason_of
from frontend.types import types_of
from management.broker_client import BrokerError


async def vhost(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """GET: the page. POST `action`: permit, revoke, limit, edit, delete."""
    name = name or request.GET.get("name", "")
    if not name:
        raise Http404
    is_administrator = request.user.is_administrator
    facts: dict[str, Any] = {"section": "vhosts", "form": request.POST, "status": 200}
    expect = name if figures.is_plain(name) else "delete"
    if request.method == "POST":
        try:
            if request.POST.get("action") == "limit":
                text = await limits.act(request, "vhost", name)
                return done(request, addresses.vhost(name), text)
            if request.POST.get("action") == "edit":
                await ask(
                    request,
                    "vhost.put",
                    name=name,
                    description=request.POST.get("description", ""),
                    default_queue_type=request.POST.get("default_queue_type", ""),
                    protected_from_deletion="protected" in request.POST,
                    tracing="tracing" in request.POST,
                )
                return done(request, addresses.vhost(name), "The virtual host is changed.")
            if request.POST.get("action") != "delete":
                text = await permissions.act(request, name, request.POST.get("user", ""))
                return done(request, addresses.vhost(name), text)
            if request.POST.get("confirm", "") != expect:
                raise FormError("The name that was typed is not this one's name. Nothing was done.")
            await ask(request, "vhost.delete", name=name)
            return done(request, "/vhosts", "The virtual host is deleted.")
        except (BrokerError, FormError) as error:
            facts |= {"error": reason_of(error), "status": 400}
    listed = await ask(request, "list", noun="vhosts")
    row = next((row for row in listed["items"] if row["name"] == name), None)
    if row is None:
        raise BrokerError(404, "not_found", "There is no such virtual host, or you may not see it.")
    found = await charts.history(request, "vhost", [name])
    facts |= {
        "vhost": row,
        # Only administrators may follow a virtual host as an object; its totals, all who see it.
        "follow": {"topic": "item", "noun": "vhosts", "key": [name]}
        if is_administrator
        else {"topic": "overview", "vhost": name},
        "expect": expect,
        "history": found,
    }
    if is_administrator:
        rows = await ask(request, "list", noun="permissions", vhost=name)
        facts |= {"permissions": rows["items"], "users": await names_of(request, "users")}
        facts["limits"] = await limits.shown(request, "vhost", name)
        facts["queue_types"] = await types_of(request, "queue")
        facts["edit_refused"] = request.POST.get("action") == "edit"
        facts["edited"] = (
            request.POST
            if facts["edit_refused"]
            else row | {"protected": row["protected_from_deletion"]}
        )
    return render(request, "vhost.html", facts, status=facts["status"])
