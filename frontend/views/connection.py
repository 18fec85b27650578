"""One connection: who it is, what it does, its channels; closing it with a reason."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, inner_tables
from frontend.asking import ask, done, is_fragment, reason_of
from frontend.charts import history
from frontend.tables import back, fragment
from management.broker_client import BrokerError

REASON = "Closed in the web interface"


async def connection(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """GET: the page. POST: close it, the client gets 320 and the reason; or change the
    `prefetch` of one of its channels."""
    name = name or request.GET.get("name", "")
    if not name:
        raise Http404
    facts: dict[str, Any] = {"section": "connections", "status": 200}
    if request.method == "POST":
        try:
            if "prefetch" in request.POST:
                return await _change_prefetch(request, name)
            reason = request.POST.get("reason", "").strip()[:200] or REASON
            await ask(request, "connection.close", name=name, reason=reason)
            return done(request, "/connections", "The connection is closed.")
        except BrokerError as error:
            facts |= {"error": reason_of(error), "status": 400}
    row = await ask(request, "item", noun="connections", name=name)
    facts |= {"table": await inner_tables.channels_of(request, name)}
    facts["empty"] = "connection/no_channels.html"
    if is_fragment(request) and request.method == "GET":
        return fragment(request, facts)
    found = await history(request, "connection", [name])
    facts |= {
        "connection": row,
        "key": [name],
        "history": found,
        "given_name": row.get("user_provided_name")
        or (row.get("client_properties") or {}).get("connection_name"),
    }
    return render(request, "connection.html", facts, status=facts["status"])


async def _change_prefetch(request: HttpRequest, name: str) -> HttpResponseBase:
    text = request.POST["prefetch"]
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise BrokerError(400, "bad_request", "A prefetch is a whole number from 0 to 65,535.")
    channel = request.POST.get("channel", "")
    await ask(request, "channel.prefetch", name=channel, prefetch=int(text))
    return done(request, back(request, addresses.connection(name)), "The prefetch is changed.")
