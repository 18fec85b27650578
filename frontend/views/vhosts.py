"""The list of virtual hosts, and making one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import FormError, ask, done, is_fragment, is_there, reason_of
from frontend.tables import Column, fragment, load
from frontend.types import types_of
from management.broker_client import BrokerError

COLUMNS = (
    Column("name", "Virtual host", "vhost", phone=True),
    Column("description", "Description", phone=True),
    Column("messages_ready", "Ready", "count", "Messages", phone=True),
    Column("messages_unacknowledged", "Unacked", "count", "Messages", phone=True),
    Column("message_stats.publish_details.rate", "In", "rate", "Rates a second"),
    Column("message_stats.deliver_get_details.rate", "Out", "rate", "Rates a second"),
)


async def vhosts(request: HttpRequest) -> HttpResponseBase:
    """GET: the list. POST: create."""
    facts: dict[str, Any] = {"section": "vhosts", "form": request.POST}
    if request.method == "POST":
        name = request.POST.get("name", "")
        try:
            if await is_there(request, "vhosts", name=name):
                raise FormError(f"There is a virtual host '{name}' already; change it on its page.")
            await ask(
                request,
                "vhost.put",
                name=name,
                description=request.POST.get("description", ""),
                default_queue_type=request.POST.get("default_queue_type", "classic"),
            )
            return done(request, "/vhosts", "The virtual host is there.")
        except (BrokerError, FormError) as error:
            facts["refusal"] = reason_of(error)
    facts["table"] = await load(
        request, "vhosts", COLUMNS, default_sort="name", also=("message_stats",)
    )
    if is_fragment(request):
        return fragment(request, facts)
    facts["queue_types"] = await types_of(request, "queue")
    return render(request, "vhosts.html", facts, status=400 if "refusal" in facts else 200)
