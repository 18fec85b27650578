"""The history: one box that finds messages in what was published, and the life of each."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.schema.message_history import HISTORY
from frontend import addresses
from frontend import history as histories
from frontend.asking import FormError, ask, done, names_of, reason_of
from management.broker_client import BrokerError


async def history(request: HttpRequest) -> HttpResponseBase:
    """GET: the box, and with `words` what they find. POST: replays what was picked."""
    facts: dict[str, Any] = {"section": "history", "status": 200, "form": request.POST}
    if request.method == "POST":
        try:
            return await _replay(request)
        except (BrokerError, FormError) as error:
            facts |= {"replay_error": reason_of(error), "status": 400}
    known = await histories.histories(request)
    written = (request.POST or request.GET).get("words", "").strip()
    facts |= {"histories": known, "words": written}
    if written and known:
        try:
            found = await histories.found(request, histories.words_of(written), known)
        except (BrokerError, FormError) as error:
            facts |= {"error": reason_of(error), "status": 400}
        else:
            facts["found"] = found
            if any(row["may_replay"] for row in found["rows"]):
                facts["vhosts"] = await names_of(request, "vhosts")
    return render(request, "history.html", facts, status=facts["status"])


async def life(request: HttpRequest) -> HttpResponseBase:
    """GET: the life of the message whose record has an offset in the history of a vhost."""
    vhost, text = request.GET.get("vhost", "/"), request.GET.get("offset", "")
    offset = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    facts: dict[str, Any] = {"section": "history", "vhost": vhost, "status": 200}
    try:
        told = await histories.life(request, vhost, offset)
    except BrokerError as error:
        if error.status in (401, 403):
            raise
        facts |= {"error": reason_of(error), "status": 404}
    else:
        facts["life"] = told
        if told["row"]["may_replay"]:
            facts["vhosts"] = await names_of(request, "vhosts")
    return render(request, "life.html", facts, status=facts["status"])


async def _replay(request: HttpRequest) -> HttpResponseBase:
    """Replays the messages that were picked, those of each virtual host by a transfer of its
    own."""
    form = request.POST
    kind = "exchange" if form.get("target_type") == "exchange" else "queue"
    target = form.get("target", "")
    if not target:
        raise FormError(f"Name the {kind} that gets the messages.")
    picked: dict[str, list[int]] = {}
    for each in form.getlist("row"):
        offset, _, vhost = each.partition(" ")
        if not (vhost and offset.isascii() and offset.isdecimal() and len(offset) < 19):
            raise FormError("What was picked is no message. Nothing was done.")
        picked.setdefault(vhost, []).append(int(offset))
    if not picked:
        raise FormError("Pick the messages that are to be replayed.")
    ids = []
    for vhost, offsets in picked.items():
        row = await ask(
            request,
            "transfer.replay",
            vhost=vhost,
            name=HISTORY,
            target=target,
            target_vhost=form.get("target_vhost") or vhost,
            target_type=kind,
            offsets=offsets,
            record=form.get("record") == "on",
        )
        ids.append(str(row["id"]))
    count = sum(map(len, picked.values()))
    text = f"Transfer {', '.join(ids)} replays {count:,} message{'s' if count > 1 else ''}."
    return done(request, addresses.queue(next(iter(picked)), HISTORY, "move"), text)
