"""Transfers: messages moved and copied between queues, also of different vhosts."""

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from ninja.responses import Status

from api.ask import ask, done, given
from api.shapes import Number, Text
from management.broker_client import BrokerError

router = Router(tags=["Transfers"])


class Filter(Schema):
    """`routing_key` is a pattern, `header` and `value` say what a header reads, the ages are
    seconds since the publish. What is not one of these is refused: a transfer without a filter
    takes all messages."""

    model_config = {"extra": "forbid"}

    routing_key: Text | None = None
    header: Text | None = None
    value: Text | None = None
    older_than: Number | None = None
    newer_than: Number | None = None


class Wanted(Filter):
    target: Text
    target_vhost: Text | None = None
    target_type: Literal["queue", "exchange"] = "queue"
    limit: Number | None = None
    rate: Number | None = None


class Resumed(Schema):
    rate: Number | None = None


class Looked(Filter):
    count: Number = 1000


@router.post("/queues/{seg:vhost}/{seg:name}/move", response={201: Any})
async def move_messages(request: HttpRequest, vhost: str, name: str, body: Wanted) -> Any:
    """Move the ready messages of a queue to another queue or to an exchange, in this vhost or in
    `target_vhost`. Marks, counts and order stay; messages that arrive later are not touched. The
    answer is the transfer, whose progress `GET /api/transfers/id` shows."""
    return await _start(request, "move", vhost, name, body)


@router.post("/queues/{seg:vhost}/{seg:name}/copy", response={201: Any})
async def copy_messages(request: HttpRequest, vhost: str, name: str, body: Wanted) -> Any:
    """Copy the ready messages of a queue, or those of a stream, in the same way. Both take a
    `rate` in messages a second."""
    return await _start(request, "copy", vhost, name, body)


async def _start(request: HttpRequest, mode: str, vhost: str, name: str, body: Wanted) -> Any:
    wanted = given(**body.dict())
    return Status(
        201, await ask(request, "transfer.start", vhost=vhost, name=name, mode=mode, **wanted)
    )


@router.post("/queues/{seg:vhost}/{seg:name}/preview")
async def preview_transfer(request: HttpRequest, vhost: str, name: str, body: Looked) -> Any:
    """How many of the first `count` messages a filter takes. Nothing changes."""
    wanted = given(**body.dict())
    return await ask(request, "transfer.preview", vhost=vhost, name=name, **wanted)


@router.get("/queues/{seg:vhost}/{seg:name}/transfers")
async def list_transfers_of(request: HttpRequest, vhost: str, name: str) -> Any:
    """Transfers from this queue, newest first."""
    return await ask(request, "transfer.list", vhost=vhost, name=name)


@router.get("/transfers")
async def list_transfers(request: HttpRequest) -> Any:
    """Transfers under way and those that are over, newest first: own ones, and those between vhosts
    that the user may look into."""
    return await ask(request, "transfer.list")


@router.get("/transfers/{seg:id}")
async def get_transfer(request: HttpRequest, id: str) -> Any:
    """One transfer: its state, and how far it is."""
    for row in await ask(request, "transfer.list"):
        if str(row["id"]) == id:
            return row
    raise BrokerError(404, "not_found", "Not Found")


@router.post("/transfers/{seg:id}/pause", response={204: None})
async def pause_transfer(request: HttpRequest, id: str) -> HttpResponse:
    """Let a transfer stay where it is until it is resumed."""
    await ask(request, "transfer.pause", id=_number(id))
    return done()


@router.post("/transfers/{seg:id}/resume", response={204: None})
async def resume_transfer(request: HttpRequest, id: str, body: Resumed | None = None) -> Any:
    """Let a transfer go on that was paused. `rate` replaces the rate, also of one that runs; 0 is
    no limit."""
    wanted = given(**body.dict()) if body is not None else {}
    await ask(request, "transfer.resume", id=_number(id), **wanted)
    return done()


@router.delete("/transfers/{seg:id}", response={204: None})
async def delete_transfer(request: HttpRequest, id: str) -> HttpResponse:
    """Stop a transfer under way; one that is over is taken off the list."""
    await ask(request, "transfer.delete", id=_number(id))
    return done()


def _number(id: str) -> int:
    """The number of a transfer. Raises BrokerError 404."""
    if not (id.isascii() and id.isdecimal() and len(id) < 17):
        raise BrokerError(404, "not_found", "Not Found")
    return int(id)
