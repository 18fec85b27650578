"""Bindings from exchanges to queues (`q`) and to exchanges (`e`)."""

from typing import Any
from urllib.parse import quote

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api.ask import ask, done
from api.listing import ListQuery, row, rows
from api.shapes import Object, Text

router = Router(tags=["Bindings"])

DESTINATIONS = {"q": "queue", "e": "exchange"}


class Binding(Schema):
    routing_key: Text = ""
    arguments: Object = {}


@router.get("/bindings")
async def list_bindings(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Bindings of all vhosts the caller may use."""
    return await rows(request, "bindings", query)


@router.get("/bindings/{seg:vhost}")
async def list_bindings_of(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Bindings of one vhost."""
    return await rows(request, "bindings", query, vhost=vhost)


PAIR = "/bindings/{seg:vhost}/e/{seg:source}/{seg:kind}/{seg:destination}"


@router.get(PAIR)
async def list_bindings_between(
    request: HttpRequest, vhost: str, source: str, kind: str, destination: str
) -> Any:
    """Bindings between an exchange and a queue (`kind` q) or an exchange (`kind` e)."""
    ends = _ends(source, kind, destination)
    await row(request, "exchanges", vhost=vhost, name=source)
    await row(request, f"{ends['destination_type']}s", vhost=vhost, name=destination)
    return await rows(request, "bindings", vhost=vhost, **ends)


@router.post(PAIR, response={201: None})
async def bind(
    request: HttpRequest, vhost: str, source: str, kind: str, destination: str, body: Binding
) -> HttpResponse:
    """Bind. `Location` names the binding, relative to this path."""
    answer = await ask(
        request,
        "binding.create",
        vhost=vhost,
        **_ends(source, kind, destination),
        routing_key=body.routing_key,
        arguments=body.arguments,
    )
    key = answer["properties_key"]
    location = f"{quote(destination, safe='')}/{quote(key, safe='')}"
    return HttpResponse(status=201, headers={"Location": location})


@router.get(PAIR + "/{seg:properties_key}")
async def get_binding(
    request: HttpRequest,
    vhost: str,
    source: str,
    kind: str,
    destination: str,
    properties_key: str,
) -> Any:
    """One binding; its key is the routing key, `key~hash` with arguments, `~` for an empty key."""
    ends = _ends(source, kind, destination)
    return await row(request, "bindings", vhost=vhost, **ends, properties_key=properties_key)


@router.delete(PAIR + "/{seg:properties_key}", response={204: None})
async def unbind(
    request: HttpRequest,
    vhost: str,
    source: str,
    kind: str,
    destination: str,
    properties_key: str,
) -> HttpResponse:
    """Remove one binding."""
    ends = _ends(source, kind, destination)
    await ask(request, "binding.delete", vhost=vhost, **ends, properties_key=properties_key)
    return done()


def _ends(source: str, kind: str, destination: str) -> dict[str, Any]:
    if kind not in DESTINATIONS:
        raise Http404
    return {
        "source": source,
        "destination": destination,
        "destination_type": DESTINATIONS[kind],
    }
