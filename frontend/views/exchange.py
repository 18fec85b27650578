"""One exchange: what comes in and goes out, its bindings, binding and publishing."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, charts, delayed, figures, inner_tables, messages
from frontend.asking import (
    FormError,
    arguments_table,
    ask,
    done,
    is_fragment,
    names_of,
    reason_of,
    row_of,
)
from frontend.tables import Table, back, fragment
from management.broker_client import BrokerError

DEFAULT = "amq.default"


async def exchange(request: HttpRequest, vhost: str = "", name: str = "") -> HttpResponseBase:
    """GET: the page. POST `action`: publish, bind, unbind, cancel_delayed, delete."""
    if not name:
        vhost, name = request.GET.get("vhost", ""), request.GET.get("name", "")
    if not name:
        raise Http404
    facts: dict[str, Any] = {"form": request.POST, "status": 200}
    if request.method == "POST":
        action = _ACTIONS.get(request.POST.get("action", ""))
        if action is None:
            raise Http404
        try:
            answer = await action(request, vhost, name, facts)
        except (BrokerError, FormError) as error:
            answer = None
            facts |= {"error": reason_of(error), "status": 400}
        if answer is not None:
            return answer
        if is_fragment(request):
            return render(request, "queue/published.html", facts)
    row = await ask(request, "item", noun="exchanges", vhost=vhost, name=name)
    real_name = "" if name == DEFAULT else name
    part = request.GET.get("part", "") if is_fragment(request) and request.method == "GET" else None
    tables: dict[str, Table] = {}
    if real_name and part in (None, "incoming-table"):
        tables["incoming"] = await inner_tables.bindings_to(request, vhost, real_name)
    if not tables or part is None:
        kind = row["type"]
        tables["outgoing"] = await inner_tables.bindings_from(request, vhost, real_name, kind)
    if part is not None:
        (table,) = tables.values()
        return fragment(request, {"table": table, "empty": "exchange/unbound.html"})
    found = await charts.history(request, "exchange", [vhost, real_name])
    facts |= {
        "section": "exchanges",
        "exchange": row,
        "key": [vhost, real_name],
        "expect": name if figures.is_plain(name) else "delete",
        "can_change": bool(real_name) and not real_name.startswith("amq."),
        **tables,
        "delayed": await delayed.found(request, vhost, real_name)
        if "messages_delayed" in row
        else None,
        "history": found,
        "queues": await names_of(request, "queues", vhost=vhost),
        "exchanges": [
            other for other in await names_of(request, "exchanges", vhost=vhost) if other
        ],
    }
    return render(request, "exchange.html", facts, status=facts["status"])


async def _publish(request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]) -> None:
    message = messages.to_publish(request.POST)
    facts["size"] = len(message["payload"])
    facts["published"] = await ask(request, "exchange.publish", vhost=vhost, name=name, **message)


async def _bind(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    kind = "exchange" if request.POST.get("destination_type") == "exchange" else "queue"
    destination = request.POST.get("destination", "")
    await ask(
        request,
        "binding.create",
        vhost=vhost,
        source=name,
        destination=destination,
        destination_type=kind,
        routing_key=request.POST.get("routing_key", ""),
        arguments=arguments_table(request.POST),
    )
    return done(request, addresses.exchange(vhost, name), f"Bound to {kind} {destination}.")


async def _unbind(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    fields = row_of(request)
    await ask(
        request,
        "binding.delete",
        vhost=vhost,
        source=fields.get("source", name),
        destination=fields.get("destination", ""),
        destination_type=fields.get("destination_type", "queue"),
        properties_key=fields.get("properties_key", "~"),
    )
    return done(request, back(request, addresses.exchange(vhost, name)), "The binding is gone.")


async def _cancel_delayed(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    id = request.POST.get("id", "")
    await ask(request, "exchange.delayed.cancel", vhost=vhost, name=name, id=id)
    return done(request, addresses.exchange(vhost, name), "The message is cancelled.")


async def _delete(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    expected = name if figures.is_plain(name) else "delete"
    if request.POST.get("confirm", "") != expected:
        raise FormError("The name that was typed is not this exchange's name. Nothing was done.")
    await ask(
        request, "exchange.delete", vhost=vhost, name=name, if_unused="if_unused" in request.POST
    )
    return done(request, "/exchanges", "The exchange is deleted.")


_ACTIONS: dict[str, Any] = {
    "publish": _publish,
    "bind": _bind,
    "unbind": _unbind,
    "cancel_delayed": _cancel_delayed,
    "delete": _delete,
}
