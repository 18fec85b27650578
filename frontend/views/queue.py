"""One queue: is it fine, what changed, what can I do. Tabs are pages; actions are POSTs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses, charts, figures, inner_tables, messages, transfers, troubles
from frontend.asking import (
    FormError,
    arguments_table,
    ask,
    done,
    is_fragment,
    names_of,
    reason_of,
    row_of,
    whole_number,
)
from frontend.tables import back, fragment
from management import search_words
from management.broker_client import BrokerError

TABS = ("overview", "messages", "consumers", "bindings", "move", "settings")
LABELS = {"move": "Move or copy"}
GET_AT_MOST = 100
GLANCE = 8
"""Consumers and bindings on the first tab."""
ACKNOWLEDGE = {
    "take": "ack_requeue_false",
    "reject": "reject_requeue_false",
}


async def queue(
    request: HttpRequest, vhost: str = "", name: str = "", tab: str = ""
) -> HttpResponseBase:
    """GET: a tab. POST `action`: get, read, search, publish, bind, unbind, purge, pause, resume,
    transfer, preview_transfer, replay, stop_transfer, pause_transfer, resume_transfer, delete."""
    if not name:
        vhost, name = request.GET.get("vhost", ""), request.GET.get("name", "")
    tab = tab or request.GET.get("tab") or TABS[0]
    if tab not in TABS or not name:
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
        if is_fragment(request) and "fragment" in facts:
            return render(request, facts["fragment"], facts)
    row = await ask(request, "item", noun="queues", vhost=vhost, name=name, flows=False)
    facts |= {"section": "queues", "queue": row, "tab": tab, "tabs": _tabs(row)}
    if row["trouble"] == "refusing":
        facts["refusals"] = await ask(request, "queue.refusals", vhost=vhost, name=name)
    if is_fragment(request) and request.GET.get("part") == "refusals":
        return render(request, "queue/refusals.html", facts)
    if tab == "move":
        facts |= await transfers.of_queue(request, vhost, name)
        if is_fragment(request) and request.GET.get("part") == "transfers":
            return render(request, "queue/transfers.html", facts)
    facts |= {"key": [vhost, name]} | await _meanings(request, row)
    facts["expect"] = name if figures.is_plain(name) else "delete"
    if tab == "overview":
        found = await charts.history(request, "queue", [vhost, name])
        facts |= {
            "history": found,
            "sparks": charts.sparks(found),
            "ranges": charts.range_links(request),
            "range": charts.chosen_range(request),
        }
        facts |= await _glance(request, vhost, name)
    elif tab == "bindings":
        facts["table"] = await inner_tables.bindings_of_queue(request, vhost, name)
    elif tab == "consumers":
        is_stream = row["type"] == "stream"
        facts["table"] = await inner_tables.consumers_of(request, vhost, name, is_stream)
        facts["empty"] = "queue/no_consumers.html"
    elif tab == "move":
        facts |= await transfers.form(request, vhost)
    if is_fragment(request) and request.method == "GET" and "table" in facts:
        return fragment(request, facts)
    if tab == "bindings":
        facts["exchanges"] = await names_of(request, "exchanges", vhost=vhost)
    return render(request, "queue.html", facts, status=facts["status"])


async def _glance(request: HttpRequest, vhost: str, name: str) -> dict[str, Any]:
    """The first consumers, the stuck ones first, and the first bindings."""
    few = {"page": 1, "page_size": GLANCE}
    consumers = await ask(
        request, "list", noun="consumers", vhost=vhost, queue=name, sort="trouble", **few
    )
    bindings = await ask(
        request,
        "list",
        noun="bindings",
        vhost=vhost,
        destination=name,
        destination_type="queue",
        sort="source",
        **few,
    )
    return {"consumers": consumers, "bindings": bindings}


async def _meanings(request: HttpRequest, row: dict[str, Any]) -> dict[str, Any]:
    """What the states of this queue mean in words."""
    found: dict[str, Any] = {"meanings": troubles.MEANING}
    if row.get("oldest_unconfirmed"):
        found["unconfirmed_age"] = figures.duration(
            max(0.0, time.time() - row["oldest_unconfirmed"] / 1000)
        )
        found["meanings"] = {**troubles.MEANING, "fine": troubles.UNCONFIRMED}
    if row.get("stream") and await _is_stuck(request, row["vhost"], row["name"]):
        stuck = dict.fromkeys(("fine", "idle"), troubles.STUCK_READER)
        found["meanings"] = {**troubles.MEANING, **stuck}
    return found


async def _is_stuck(request: HttpRequest, vhost: str, name: str) -> bool:
    """Whether a reader of a stream acknowledges nothing."""
    stuck = await ask(
        request,
        "list",
        noun="consumers",
        vhost=vhost,
        queue=name,
        state="stuck",
        page=1,
        page_size=1,
    )
    return bool(stuck["filtered_count"])


def _tabs(row: dict[str, Any]) -> list[tuple[str, str, str, int | None]]:
    """Name, label, address and number of things of each tab."""
    numbers = {"messages": row.get("messages"), "consumers": row.get("consumers")}
    labels = {tab: LABELS.get(tab, tab.capitalize()) for tab in TABS}
    if row.get("stream"):
        labels["move"] = "Replay or copy"
    return [(tab, labels[tab], _address(row, tab), numbers.get(tab)) for tab in TABS]


def _address(row: dict[str, Any], tab: str) -> str:
    return addresses.queue(row["vhost"], row["name"], "" if tab == TABS[0] else tab)


async def _get(request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]) -> None:
    facts["fragment"] = "queue/got.html"
    how = request.POST.get("how", "look")
    if how != "look" and how not in ACKNOWLEDGE:
        raise FormError("Pick what happens to the messages: look, take out or reject.")
    count = whole_number(request.POST, "count", 1, GET_AT_MOST, 1)
    wanted = {"vhost": vhost, "name": name, "count": count, "truncate": messages.SHOWN_BYTES}
    if how == "look":
        got = await ask(request, "queue.peek", **wanted)
    else:
        got = await ask(request, "queue.get", ackmode=ACKNOWLEDGE[how], **wanted)
    facts |= {"got": [messages.shown(message) for message in got], "how": how, "asked": True}


async def _read(request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]) -> None:
    """Looks into a stream."""
    facts["fragment"] = "queue/seen.html"
    count = whole_number(request.POST, "count", 1, GET_AT_MOST, 1)
    seen = await ask(
        request,
        "stream.read",
        vhost=vhost,
        name=name,
        offset=request.POST.get("offset", "").strip() or "first",
        count=count,
        truncate=messages.SHOWN_BYTES,
    )
    facts |= {"seen": [messages.shown(message) for message in seen], "asked": True}
    facts["offsets"] = [row["offset"] for row in (*seen[:1], *seen[-1:])]


async def _search(request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]) -> None:
    """Finds messages of a stream by its index."""
    facts["fragment"] = "queue/found.html"
    facts["words"] = request.POST.get("words", "")
    try:
        words = search_words.parse(facts["words"], time.time_ns() // 1_000_000)
    except search_words.BadWords as error:
        raise FormError(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
    wanted = {"key": words.key, "first": words.first, "last": words.last}
    found = await ask(
        request,
        "stream.search",
        vhost=vhost,
        name=name,
        value=words.value,
        max=whole_number(request.POST, "most", 1, GET_AT_MOST, 10),
        truncate=messages.SHOWN_BYTES,
        **{key: value for key, value in wanted.items() if value is not None},
    )
    facts |= {"found": found, "shown": [messages.shown(message) for message in found["messages"]]}


async def _publish(request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]) -> None:
    facts["fragment"] = "queue/published.html"
    message = messages.to_publish(request.POST) | {"routing_key": name}
    answer = await ask(request, "exchange.publish", vhost=vhost, name="amq.default", **message)
    facts |= {"published": answer, "size": len(message["payload"])}


async def _bind(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    source = request.POST.get("source", "")
    await ask(
        request,
        "binding.create",
        vhost=vhost,
        source=source,
        destination=name,
        destination_type="queue",
        routing_key=request.POST.get("routing_key", ""),
        arguments=arguments_table(request.POST),
    )
    return done(request, addresses.queue(vhost, name, "bindings"), f"Bound to {source}.")


async def _unbind(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    fields = row_of(request)
    await ask(
        request,
        "binding.delete",
        vhost=vhost,
        source=fields.get("source", ""),
        destination=name,
        destination_type="queue",
        properties_key=fields.get("properties_key", "~"),
    )
    address = addresses.queue(vhost, name, "bindings")
    return done(request, back(request, address), "The binding is gone.")


async def _purge(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    _check_typed(request, name)
    answer = await ask(request, "queue.purge", vhost=vhost, name=name)
    return done(request, addresses.queue(vhost, name), f"Purged {answer['messages']:,} messages.")


async def _pause(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    await ask(request, "queue.pause", vhost=vhost, name=name)
    text = "Paused: messages come in, and none goes out until the queue is resumed."
    return done(request, addresses.queue(vhost, name), text)


async def _resume(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    await ask(request, "queue.resume", vhost=vhost, name=name)
    return done(request, addresses.queue(vhost, name), "Resumed: deliveries go on.")


async def _cancel(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    fields = row_of(request)
    channel = fields.get("channel", "")
    if not (channel.isascii() and channel.isdecimal() and len(channel) < 6):
        raise FormError("The channel is no number. Nothing was done.")
    await ask(
        request,
        "consumer.cancel",
        vhost=vhost,
        connection=fields.get("connection", ""),
        channel=int(channel),
        consumer_tag=fields.get("consumer_tag", ""),
    )
    address = addresses.queue(vhost, name, "consumers")
    return done(request, back(request, address), "The consumer is cancelled.")


async def _preview_transfer(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> None:
    facts["fragment"] = "queue/previewed.html"
    facts["previewed"] = await transfers.preview(request, vhost, name)


async def _transfer(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    row = await transfers.start(request, vhost, name)
    text = f"Transfer {row['id']} has started."
    return done(request, addresses.queue(vhost, name, "move"), text)


async def _replay(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    text = await transfers.replay(request, vhost, name)
    return done(request, addresses.queue(vhost, name, "move"), text)


def _with_transfer(act: Callable[[HttpRequest], Awaitable[str]]) -> Any:
    """A button of one transfer."""

    async def action(
        request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
    ) -> HttpResponseBase:
        return done(request, addresses.queue(vhost, name, "move"), await act(request))

    return action


async def _delete(
    request: HttpRequest, vhost: str, name: str, facts: dict[str, Any]
) -> HttpResponseBase:
    _check_typed(request, name)
    answer = await ask(
        request,
        "queue.delete",
        vhost=vhost,
        name=name,
        if_unused="if_unused" in request.POST,
        if_empty="if_empty" in request.POST,
    )
    messages_gone = f"{answer['messages']:,} messages"
    return done(request, "/queues", f"Deleted the queue with {messages_gone}.")


def _check_typed(request: HttpRequest, name: str) -> None:
    """The name stands in the field; for a name one cannot type, the word `delete`."""
    expected = name if figures.is_plain(name) else "delete"
    if request.POST.get("confirm", "") != expected:
        raise FormError("The name that was typed is not this queue's name. Nothing was done.")


_ACTIONS: dict[str, Any] = {
    "get": _get,
    "read": _read,
    "search": _search,
    "publish": _publish,
    "bind": _bind,
    "unbind": _unbind,
    "purge": _purge,
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "transfer": _transfer,
    "preview_transfer": _preview_transfer,
    "replay": _replay,
    "stop_transfer": _with_transfer(transfers.stop),
    "pause_transfer": _with_transfer(transfers.pause),
    "resume_transfer": _with_transfer(transfers.resume),
    "delete": _delete,
}
