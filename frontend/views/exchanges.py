"""The list of exchanges, and making one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.arguments import is_there
from frontend import addresses, arguments
from frontend.asking import FormError, ask, done, is_fragment, names_of, reason_of
from frontend.tables import POLICED, Column, fragment, load
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
TYPES = (
    ("topic", "topic: by words of the routing key, with * and #"),
    ("direct", "direct: by the whole routing key"),
    ("fanout", "fanout: to every binding"),
    ("headers", "headers: by header values"),
    *(
        (type, text)
        for type, text, module in (
            (
                "x-consistent-hash",
                "x-consistent-hash: one queue for each key, binding keys are weights",
                "routing.consistent_hash",
            ),
            ("x-random", "x-random: to one of its bindings by chance", "routing.random"),
            (
                "x-delayed-message",
                "x-delayed-message: later, then as another type",
                "features.delayed",
            ),
        )
        if is_there(module)
    ),
)


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
    facts |= {"section": "exchanges", "vhosts": await names_of(request, "vhosts"), "types": TYPES}
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
