"""Exchanges, and publishing to them. The default exchange is `amq.default`."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api import payload
from api.ask import ask, done, put_answer
from api.listing import ListQuery, SampleQuery, row, rows
from api.shapes import Flag, Object, Text

router = Router(tags=["Exchanges"])


class Exchange(Schema):
    type: Text = "direct"
    durable: Flag = False
    auto_delete: Flag = False
    internal: Flag = False
    arguments: Object = {}


class Message(Schema):
    properties: Object
    routing_key: Text
    payload: Text
    payload_encoding: Text


@router.get("/exchanges")
async def list_exchanges(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Exchanges of all vhosts the caller may use."""
    return await rows(request, "exchanges", query)


@router.get("/exchanges/{seg:vhost}")
async def list_exchanges_of(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Exchanges of one vhost."""
    return await rows(request, "exchanges", query, vhost=vhost)


@router.get("/exchanges/{seg:vhost}/{seg:name}")
async def get_exchange(
    request: HttpRequest, vhost: str, name: str, query: Query[SampleQuery]
) -> Any:
    """One exchange."""
    return await row(request, "exchanges", vhost=vhost, name=name, **query.wanted())


@router.put("/exchanges/{seg:vhost}/{seg:name}", response={201: None, 204: None})
async def put_exchange(request: HttpRequest, vhost: str, name: str, body: Exchange) -> HttpResponse:
    """Declare an exchange; one that exists must be the same."""
    return put_answer(await ask(request, "exchange.declare", vhost=vhost, name=name, **body.dict()))


@router.delete("/exchanges/{seg:vhost}/{seg:name}", response={204: None})
async def delete_exchange(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Delete an exchange; with `if-unused=true` only one without bindings from it."""
    await row(request, "exchanges", vhost=vhost, name=name)
    if_unused = request.GET.get("if-unused") == "true"
    await ask(request, "exchange.delete", vhost=vhost, name=name, if_unused=if_unused)
    return done()


@router.post("/exchanges/{seg:vhost}/{seg:name}/publish")
async def publish(request: HttpRequest, vhost: str, name: str, body: Message) -> Any:
    """Publish one message; `routed` says whether any queue took it."""
    return await ask(
        request,
        "exchange.publish",
        vhost=vhost,
        name=name,
        routing_key=body.routing_key,
        payload=await payload.decode(body.payload, body.payload_encoding),
        properties=body.properties,
    )


class DelayedQuery(Schema):
    routing_key: str = ""
    due_from: int | None = None
    due_until: int | None = None
    after: str | None = None
    count: int = 100


@router.get("/exchanges/{seg:vhost}/{seg:name}/delayed")
async def list_delayed(
    request: HttpRequest, vhost: str, name: str, query: Query[DelayedQuery]
) -> Any:
    """Messages that the exchange holds back, soonest first: `routing_key` is a part of theirs,
    `due_from` and `due_until` are ms since 1970, `after` is the `next` of the page before."""
    return await ask(request, "exchange.delayed", vhost=vhost, name=name, **query.dict())


@router.delete("/exchanges/{seg:vhost}/{seg:name}/delayed/{seg:id}", response={204: None})
async def cancel_delayed(request: HttpRequest, vhost: str, name: str, id: str) -> HttpResponse:
    """Cancel a message that the exchange holds back: it is dropped."""
    await ask(request, "exchange.delayed.cancel", vhost=vhost, name=name, id=id)
    return done()


@router.get("/exchanges/{seg:vhost}/{seg:name}/bindings/source")
async def list_bindings_from(
    request: HttpRequest, vhost: str, name: str, query: Query[ListQuery]
) -> Any:
    """Bindings in which the exchange is the source."""
    await row(request, "exchanges", vhost=vhost, name=name)
    return await rows(request, "bindings", query, vhost=vhost, source=name)


@router.get("/exchanges/{seg:vhost}/{seg:name}/bindings/destination")
async def list_bindings_to(
    request: HttpRequest, vhost: str, name: str, query: Query[ListQuery]
) -> Any:
    """Bindings in which the exchange is the destination."""
    await row(request, "exchanges", vhost=vhost, name=name)
    return await rows(
        request, "bindings", query, vhost=vhost, destination=name, destination_type="exchange"
    )
