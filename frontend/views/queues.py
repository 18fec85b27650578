"""The list of queues: what needs a person first; create, purge and delete."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, arguments
from frontend.asking import FormError, ask, done, is_fragment, names_of, reason_of, typed_json
from frontend.tables import POLICED, Column, fragment, load
from frontend.troubles import WORDS
from frontend.types import types_of
from management.broker_client import BrokerError

COLUMNS = (
    Column("name", "Queue", "queue", phone=True),
    Column("vhost", "Virtual host", "vhost"),
    Column("trouble", "State", "trouble", phone=True),
    Column("messages_ready", "Ready", "count", "Messages", "Waiting for a consumer", phone=True),
    Column(
        "messages_unacknowledged", "Unacked", "count", "Messages", "Delivered, not yet acknowledged"
    ),
    Column("message_bytes", "Size", "size", "Messages", "Bodies of all messages in the queue"),
    Column("message_stats.publish_details.rate", "In", "rate", "Rates a second", phone=True),
    Column("message_stats.deliver_get_details.rate", "Out", "rate", "Rates a second", phone=True),
    Column("message_stats.ack_details.rate", "Acks", "rate", "Rates a second"),
    Column("net_rate", "Net", "net", "Rates a second", "How fast it grows or shrinks"),
    Column("consumers", "Consumers", "count", "", "Consumers attached to the queue"),
    Column("durable", "Features", "features", sort=None),
)
ASKS = {"ask-purge": "purge", "ask-delete": "delete"}
"""Before an action: what it would do, for the dialog."""

ALSO = ("auto_delete", "exclusive", "arguments", "type", "state", "message_stats", *POLICED)


async def queues(request: HttpRequest) -> HttpResponseBase:
    """GET: the list. POST `action`: `create`, or `purge` and `delete` for the picked rows."""
    facts: dict[str, Any] = {"form": {}, "status": 200}
    if request.method == "POST":
        try:
            if request.POST.get("action") == "create":
                return await _create(request)
            if request.POST.get("action") in ASKS:
                return await _ask_about_rows(request)
            return await _act_on_rows(request)
        except (BrokerError, FormError) as error:
            is_creating = request.POST.get("action") == "create"
            facts["refusal" if is_creating else "error"] = reason_of(error)
            facts |= {"form": request.POST, "status": 400}
    table = await load(request, "queues", COLUMNS, default_sort="trouble", can_pick=True, also=ALSO)
    facts |= {"table": table, "bulk": "queues/bulk.html", "empty": "queues/empty.html"}
    if is_fragment(request) and request.method == "GET":
        return fragment(request, facts)
    facts |= {
        "section": "queues",
        "vhosts": await names_of(request, "vhosts"),
        "types": await types_of(request, "queue"),
        "groups": arguments.groups("queue", facts["form"]),
        "states": [
            ("", "all"),
            ("trouble", "trouble"),
            *((word, word) for word in WORDS[:5]),
            ("idle", "idle"),
        ],
    }
    return render(request, "queues.html", facts, status=facts["status"])


async def _create(request: HttpRequest) -> HttpResponseBase:
    fields = request.POST
    vhost, name = fields.get("vhost", "/"), fields.get("name", "")
    if not name:
        raise FormError("A queue needs a name; only clients get server-named queues.")
    table = arguments.given("queue", fields)
    kind = fields.get("type", "classic")
    home = await ask(request, "item", noun="vhosts", name=vhost)
    if (kind, home["default_queue_type"]) != ("classic", "classic"):
        table["x-queue-type"] = kind
    await ask(
        request,
        "queue.declare",
        vhost=vhost,
        name=name,
        durable=fields.get("durability") != "transient",
        auto_delete="auto_delete" in fields,
        arguments=table,
    )
    return done(request, addresses.queue(vhost, name), "The queue is there.")


def _picked(request: HttpRequest) -> list[tuple[str, str]]:
    """Vhost and name of each picked row. Raises FormError for a row without its key."""
    try:
        keys = [typed_json(row, "Rows are") for row in request.POST.getlist("row")]
        return [(str(vhost), str(name)) for vhost, name in keys]
    except (FormError, ValueError, TypeError):
        raise FormError("The picked rows cannot be read. Load the list again.") from None


async def _ask_about_rows(request: HttpRequest) -> HttpResponseBase:
    """The dialog: names, messages as of now, and the number to type."""
    action = ASKS[request.POST["action"]]
    found = []
    for vhost, name in _picked(request):
        try:
            found.append(await ask(request, "item", noun="queues", vhost=vhost, name=name))
        except BrokerError as error:
            if error.status != 404:
                raise
    facts = {
        "action": action,
        "verb": action.capitalize(),
        "queues": sorted(found, key=lambda row: -row["messages"]),
        "ready": sum(row["messages_ready"] for row in found),
        "unacknowledged": sum(row["messages_unacknowledged"] for row in found),
        "consumers": sum(row["consumers"] for row in found),
        "missing": len(request.POST.getlist("row")) - len(found),
        "expect": len(request.POST.getlist("row")),
    }
    return render(request, "queues/confirm.html", facts)


async def _act_on_rows(request: HttpRequest) -> HttpResponseBase:
    action = request.POST.get("action")
    if action not in ("purge", "delete"):
        raise FormError("Pick what to do: purge or delete.")
    picked = _picked(request)
    if request.POST.get("typed", "").strip() != str(len(picked)):
        raise FormError("The number that was typed is not the number of queues. Nothing was done.")
    messages, done_with, failed = 0, 0, []
    for vhost, name in picked:
        try:
            answer = await ask(request, f"queue.{action}", vhost=vhost, name=name)
        except BrokerError as error:
            if error.status >= 500:
                raise
            failed.append(f"{name}: {error.reason}")
            continue
        messages += answer["messages"]
        done_with += 1
    verb = "Purged" if action == "purge" else "Deleted"
    text = f"{verb} {_queues(done_with)} with {messages:,} message{'' if messages == 1 else 's'}."
    if failed:
        raise FormError(f"{text} {_queues(len(failed))} left as before: {'; '.join(failed[:5])}")
    return done(request, request.get_full_path(), text)


def _queues(count: int) -> str:
    return f"{count:,} queue{'' if count == 1 else 's'}"
