"""The list of exchanges, and making one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, arguments
from frontend.asking import FormError, ask, done, is_fragment, names_of, reason_of
from frontend.tables import POLICED, Column, fragment, load
from frontend.types import types_of
from management.broker_client import BrokerError

COLUMNS = (
    Column("name", "Exchange", "exchange", phone=True),
    Column("vhost", "Virtual host", "vhost"),
    Column("type", "Type", "text", phone=True),
    Column("durable", "Features", "features", sort=None),
    Column(
        "message_stats.publish_in_details.rate",
        "In",
        "rate",
        "Rates a second",
        "Published to it",
        phone=True,
    ),
    Column(
        "message_stats.publish_out_details.rate",
        "Out",
        "rate",
        "Rates a second",
        "Routed to queues",
        phone=True,
    ),
)
ALSO = ("auto_delete", "internal", "arguments", "message_stats", *POLICED)


async def exchanges(request: HttpRequest) -> HttpResponseBase:
    """GET: the list. POST: create."""
    facts: dict[str, Any] = {"form": request.POST}
    if request.method == "POST":
        try:
            return await _create(request)
        except (BrokerError, FormError) as error:
            facts["refusal"] = reason_of(error)
    facts["table"] = await load(request, "exchanges", COLUMNS, default_sort="name", also=ALSO)
    if is_fragment(request):
        return fragment(request, facts)
    facts |= {"section": "exchanges", "vhosts": await names_of(request, "vhosts")}
    facts["types"] = await types_of(request, "exchange")
    facts["groups"] = arguments.groups("exchange", facts["form"])
    return render(request, "exchanges.html", facts, status=400 if "refusal" in facts else 200)


async def _create(request: HttpRequest) -> HttpResponseBase:
    fields = request.POST
    vhost, name = fields.get("vhost", "/"), fields.get("name", "")
    if not name:
        raise FormError("An exchange needs a name.")
    await ask(
        request,
        "exchange.declare",
        vhost=vhost,
        name=name,
        type=fields.get("type", "topic"),
        durable=fields.get("durability") != "transient",
        auto_delete="auto_delete" in fields,
        internal="internal" in fields,
        arguments=arguments.given("exchange", fields),
    )
    return done(request, addresses.exchange(vhost, name), "The exchange is there.")
