"""The forms that move, copy and replay messages, and the transfers of a queue, on the queue's
page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.http import HttpRequest, QueryDict

from frontend.asking import FormError, ask, names_of, reason_of, whole_number
from management.broker_client import BrokerError
from management.replay_words import replay_arguments
from management.search_words import BadWords

PREVIEWED = 1000
SECONDS_MOST = 10 * 365 * 86_400
LIMIT_MOST = 2**53
RATE_MOST = 10_000_000


class Field(NamedTuple):
    """One key of `transfer.start`, as the form shows it."""

    name: str
    label: str
    help: str
    most: int = 0
    """The largest number; 0 for a text."""


FILTER = (
    Field(
        "routing_key",
        "Routing key matches",
        "RE2 pattern, found anywhere in the routing key; empty is every key.",
    ),
    Field("header", "Header", "Name of a header that messages must have."),
    Field(
        "value",
        "Header reads",
        "What that header reads: text as it is, numbers in digits, true or false.",
    ),
    Field(
        "older_than",
        "Older than, seconds",
        "Published at least so long before the start; empty is any age.",
        SECONDS_MOST,
    ),
    Field(
        "newer_than",
        "Newer than, seconds",
        "Published at most so long before the start; empty is any age.",
        SECONDS_MOST,
    ),
)
LIMIT = Field("limit", "At most", "How many messages are handed over; empty is all.", LIMIT_MOST)
RATE = Field("rate", "A second", "Messages a second at most; empty is no limit.", RATE_MOST)
FIELDS = (*FILTER, LIMIT, RATE)
REPLAY = (
    Field(
        "from",
        "Range from",
        "An offset, or a day, a time (UTC), yesterday or an age such as 2h; empty is the oldest.",
    ),
    Field("to", "Range to", "The last offset, or a time in the same way; empty is the newest."),
    Field("words", "Only what a search finds", "Such as order_id=4711; empty is the whole range."),
    RATE,
)


def _filter(form: Mapping[str, str], fields: tuple[Field, ...]) -> dict[str, Any]:
    """What stands in the form. Raises FormError."""
    found: dict[str, Any] = {}
    for field in fields:
        if field.most and form.get(field.name, "").strip():
            found[field.name] = whole_number(form, field.name, 0, field.most, 0)
        elif not field.most and form.get(field.name, ""):
            found[field.name] = form[field.name]
    return found


async def preview(request: HttpRequest, vhost: str, name: str) -> dict[str, Any]:
    """How many of the first messages the filter in the form takes."""
    wanted = _filter(request.POST, FILTER)
    found: dict[str, Any] = await ask(
        request, "transfer.preview", vhost=vhost, name=name, count=PREVIEWED, **wanted
    )
    return found


async def start(request: HttpRequest, vhost: str, name: str) -> dict[str, Any]:
    """Starts what the form says; its row. Raises FormError, BrokerError."""
    form = request.POST
    mode = form.get("mode", "")
    if mode not in ("move", "copy"):
        raise FormError("Pick what happens to the messages: move or copy.")
    kind = "exchange" if form.get("target_type") == "exchange" else "queue"
    target = form.get("target", "")
    if not target:
        raise FormError(f"Name the {kind} that gets the messages.")
    row: dict[str, Any] = await ask(
        request,
        "transfer.start",
        vhost=vhost,
        name=name,
        mode=mode,
        target=target,
        target_vhost=form.get("target_vhost") or vhost,
        target_type=kind,
        **_filter(form, FIELDS),
    )
    return row


async def replay(request: HttpRequest, vhost: str, name: str) -> str:
    """Starts the replay that the form asks for; what to say. Raises FormError, BrokerError."""
    form = request.POST
    target = form.get("target", "")
    if not target:
        raise FormError("Name the queue or exchange that gets the messages.")
    try:
        picked = replay_arguments(
            form.get("from", ""),
            form.get("to", ""),
            form.get("words", ""),
            time.time_ns() // 1_000_000,
        )
    except BadWords as error:
        raise FormError(f"{str(error)[0].upper()}{str(error)[1:]}.") from None
    row: dict[str, Any] = await ask(
        request,
        "transfer.replay",
        vhost=vhost,
        name=name,
        target=target,
        target_vhost=form.get("target_vhost") or vhost,
        target_type="exchange" if form.get("target_type") == "exchange" else "queue",
        **picked,
        **_filter(form, (RATE,)),
    )
    lacks = f" Some may be missing: {'; '.join(row['reasons'])}." if row["reasons"] else ""
    return f"Transfer {row['id']} replays {row['total']:,} messages.{lacks}"


def _number(request: HttpRequest) -> int:
    """Which transfer's button was pressed. Raises FormError."""
    id = request.POST.get("id", "")
    if not (id.isascii() and id.isdecimal() and len(id) < 17):
        raise FormError("The transfer is no number. Nothing was done.")
    return int(id)


async def stop(request: HttpRequest) -> str:
    """Stops the transfer whose button was pressed, or takes it off the list; what to say."""
    id = _number(request)
    rows = await ask(request, "transfer.list")
    was_over = any(row["id"] == id and row["ended"] is not None for row in rows)
    await ask(request, "transfer.delete", id=id)
    return f"Transfer {id} is {'off the list' if was_over else 'stopped'}."


async def pause(request: HttpRequest) -> str:
    """The transfer whose button was pressed stays where it is; what to say."""
    id = _number(request)
    await ask(request, "transfer.pause", id=id)
    return f"Transfer {id} is paused."


async def resume(request: HttpRequest) -> str:
    """Resumes the transfer whose button was pressed; returns the notice."""
    id = _number(request)
    await ask(request, "transfer.resume", id=id)
    return f"Transfer {id} continues."


async def of_queue(request: HttpRequest, vhost: str, name: str) -> dict[str, Any]:
    """What `queue/transfers.html` shows: the transfers of a queue, and whether one is under way."""
    try:
        rows = await ask(request, "transfer.list", vhost=vhost, name=name)
    except BrokerError as error:
        return {"transfers": [], "transfers_error": reason_of(error)}
    user = request.user
    for row in rows:
        row["is_over"] = row["ended"] is not None
        row["may_stop"] = user.is_administrator or row["user"] == user.name
        row["filters"] = [
            (field.label, row["filter"][key])
            for field, key in ((FILTER[0], "routing_key"), (FILTER[1], "header"))
            if row["filter"][key] is not None
        ]
        row["done"] = row["total"] - row["left"]
    return {"transfers": rows, "is_transferring": any(not row["is_over"] for row in rows)}


async def form(request: HttpRequest, vhost: str) -> dict[str, Any]:
    """What `queue/move.html` needs besides: the two forms as they were filled in, and names."""
    typed, nothing = request.POST, QueryDict()
    is_replay = typed.get("action") == "replay"
    filled = nothing if is_replay else typed
    replay = typed if is_replay else nothing
    return {
        "transfer_form": filled,
        "transfer_fields": _filled(FIELDS, filled),
        "transfer_vhost": filled.get("target_vhost") or vhost,
        "replay_form": replay,
        "replay_fields": _filled(REPLAY, replay),
        "replay_vhost": replay.get("target_vhost") or vhost,
        "queues": await names_of(request, "queues", vhost=vhost),
        "vhosts": await names_of(request, "vhosts"),
    }


def _filled(fields: tuple[Field, ...], filled: QueryDict) -> list[dict[str, Any]]:
    return [{**field._asdict(), "value": filled.get(field.name, "")} for field in fields]
