"""Queues: declare, look, purge, pause, take messages."""

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api import payload
from api.ask import ask, done, given, put_answer
from api.listing import ListQuery, SampleQuery, row, rows
from api.shapes import Flag, Number, Object, Text
from management.appliance import config
from management.broker_client import BrokerError

router = Router(tags=["Queues"])


class Queue(Schema):
    durable: Flag = False
    auto_delete: Flag = False
    exclusive: Flag = False
    arguments: Object = {}


class Get(Schema):
    count: Number
    ackmode: Literal[
        "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"
    ]
    encoding: Literal["auto", "base64"]
    truncate: Number | None = None


class Peek(Schema):
    count: Number = 1
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Number | None = None


class Read(Schema):
    offset: Number | Text = "first"
    count: Number
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Number | None = None


class Action(Schema):
    action: Text


@router.get("/queues")
async def list_queues(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Queues of all vhosts the caller may use."""
    return await rows(request, "queues", query)


@router.get("/queues/detailed")
async def list_queues_detailed(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """As the plain list, which leaves nothing out."""
    return await rows(request, "queues", query)


@router.get("/queues/{seg:vhost}")
async def list_queues_of(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Queues of one vhost."""
    return await rows(request, "queues", query, vhost=vhost)


@router.get("/queues/{seg:vhost}/{seg:name}")
async def get_queue(request: HttpRequest, vhost: str, name: str, query: Query[SampleQuery]) -> Any:
    """One queue, with its consumers and where its messages come from and go to."""
    return await row(request, "queues", vhost=vhost, name=name, **query.wanted())


@router.put("/queues/{seg:vhost}/{seg:name}", response={201: None, 204: None})
async def put_queue(request: HttpRequest, vhost: str, name: str, body: Queue) -> HttpResponse:
    """Declare a queue; one that exists must be the same. Not durable unless the body says so."""
    return put_answer(await ask(request, "queue.declare", vhost=vhost, name=name, **body.dict()))


@router.delete("/queues/{seg:vhost}/{seg:name}", response={204: None})
async def delete_queue(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Delete a queue; `if-unused=true` and `if-empty=true` make it conditional."""
    await row(request, "queues", vhost=vhost, name=name)
    await ask(
        request,
        "queue.delete",
        vhost=vhost,
        name=name,
        if_unused=request.GET.get("if-unused") == "true",
        if_empty=request.GET.get("if-empty") == "true",
    )
    return done()


@router.delete("/queues/{seg:vhost}/{seg:name}/contents", response={204: None})
async def purge_queue(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Drop all messages that are ready."""
    await ask(request, "queue.purge", vhost=vhost, name=name)
    return done()


@router.put("/queues/{seg:vhost}/{seg:name}/pause", response={204: None})
async def pause_queue(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Stop deliveries to consumers and to `basic.get`. Publishing continues, and a durable queue is
    still paused after a restart."""
    await ask(request, "queue.pause", vhost=vhost, name=name)
    return done()


@router.put("/queues/{seg:vhost}/{seg:name}/resume", response={204: None})
async def resume_queue(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Let the deliveries of a paused queue go on."""
    await ask(request, "queue.resume", vhost=vhost, name=name)
    return done()


@router.put("/queues/{seg:vhost}/{seg:name}/restart", response={204: None})
async def restart_queue(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Let a queue read again at once what the disk failed to read; 400 if it waits for nothing."""
    await ask(request, "queue.restart", vhost=vhost, name=name)
    return done()


class UnackedQuery(Schema):
    count: int = 1000


@router.get("/queues/{seg:vhost}/{seg:name}/unacked")
async def list_unacked(
    request: HttpRequest, vhost: str, name: str, query: Query[UnackedQuery]
) -> Any:
    """What consumers of the queue hold, at most `count` deliveries by channel and tag."""
    answer = await ask(request, "queue.unacked", vhost=vhost, name=name, count=query.count)
    return answer["items"]


@router.post("/queues/{seg:vhost}/{seg:name}/get")
async def get_messages(request: HttpRequest, vhost: str, name: str, body: Get) -> Any:
    """Take messages from the head, of a paused queue too; the requeueing modes put them back,
    marked redelivered."""
    if body.count < 0:
        raise BrokerError(400, "bad_request", "count must not be negative")
    messages = await ask(
        request,
        "queue.get",
        vhost=vhost,
        name=name,
        count=body.count,
        ackmode=body.ackmode,
        bytes_max=config().get_bytes_max,
        **given(truncate=body.truncate),
    )
    return await payload.answer(messages, body.encoding)


@router.post("/queues/{seg:vhost}/{seg:name}/peek")
async def peek_messages(request: HttpRequest, vhost: str, name: str, body: Peek) -> Any:
    """Look at ready messages, the next to be delivered first. Nothing changes: no message is taken,
    marked as redelivered or counted as delivered."""
    messages = await ask(
        request,
        "queue.peek",
        vhost=vhost,
        name=name,
        count=body.count,
        bytes_max=config().get_bytes_max,
        **given(truncate=body.truncate),
    )
    return await payload.answer(messages, body.encoding)


@router.get("/queues/{seg:vhost}/{seg:name}/refusals")
async def refusals(request: HttpRequest, vhost: str, name: str) -> Any:
    """Publishes that the queue refuses because it is full: how many a second, by which limit, and
    whose."""
    return await ask(request, "queue.refusals", vhost=vhost, name=name)


@router.post("/queues/{seg:vhost}/{seg:name}/stream")
async def read_stream(request: HttpRequest, vhost: str, name: str, body: Read) -> Any:
    """Look into a stream from an offset on: `first`, `last`, `next`, a number, or an interval such
    as `1h`. Nothing is taken out."""
    messages = await ask(
        request,
        "stream.read",
        vhost=vhost,
        name=name,
        offset=body.offset,
        count=body.count,
        bytes_max=config().get_bytes_max,
        **given(truncate=body.truncate),
    )
    return await payload.answer(messages, body.encoding)


@router.post("/queues/{seg:vhost}/{seg:name}/actions", response={204: None})
async def act(request: HttpRequest, vhost: str, name: str, body: Action) -> HttpResponse:
    """RabbitMQ's actions steered mirrored queues, which do not exist here."""
    await row(request, "queues", vhost=vhost, name=name)
    raise BrokerError(400, "bad_request", f"unknown action: {body.action:.100}")


@router.get("/queues/{seg:vhost}/{seg:name}/bindings")
async def list_queue_bindings(
    request: HttpRequest, vhost: str, name: str, query: Query[ListQuery]
) -> Any:
    """Bindings that lead to the queue."""
    await row(request, "queues", vhost=vhost, name=name)
    return await rows(
        request, "bindings", query, vhost=vhost, destination=name, destination_type="queue"
    )
