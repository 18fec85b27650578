"""Connections, and the channels and consumers on them."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api.ask import ask, done, header_text
from api.listing import ListQuery, SampleQuery, row, rows
from api.shapes import Number

router = Router(tags=["Connections"])

REASON = "Closed via management plugin"


@router.get("/connections")
async def list_connections(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Open connections; those of other users only for monitoring and administrators."""
    return await rows(request, "connections", query)


@router.get("/connections/username/{seg:user}")
async def list_connections_of_user(request: HttpRequest, user: str, query: Query[ListQuery]) -> Any:
    """Open connections of one user."""
    return await rows(request, "connections", query, user=user)


@router.delete("/connections/username/{seg:user}", response={204: None})
async def close_connections_of_user(request: HttpRequest, user: str) -> HttpResponse:
    """Close all connections of a user; the clients get the header `X-Reason` as reason."""
    await ask(request, "connection.close_user", user=user, reason=_reason(request))
    return done()


@router.get("/connections/{seg:name}")
async def get_connection(request: HttpRequest, name: str, query: Query[SampleQuery]) -> Any:
    """One connection."""
    return await row(request, "connections", name=name, **query.wanted())


@router.delete("/connections/{seg:name}", response={204: None})
async def close_connection(request: HttpRequest, name: str) -> HttpResponse:
    """Close a connection; the client gets the header `X-Reason` as reason."""
    await ask(request, "connection.close", name=name, reason=_reason(request))
    return done()


@router.get("/connections/{seg:name}/channels")
async def list_channels_of(request: HttpRequest, name: str, query: Query[ListQuery]) -> Any:
    """Channels of one connection."""
    await row(request, "connections", name=name)
    return await rows(request, "channels", query, connection=name)


@router.get("/channels")
async def list_channels(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Open channels; those of other users only for monitoring and administrators."""
    return await rows(request, "channels", query)


@router.get("/channels/{seg:name}")
async def get_channel(request: HttpRequest, name: str, query: Query[SampleQuery]) -> Any:
    """One channel, named `<connection> (<number>)`."""
    return await row(request, "channels", name=name, **query.wanted())


class Prefetch(Schema):
    prefetch: Number


@router.put("/channels/{seg:name}", response={204: None})
async def put_channel(request: HttpRequest, name: str, body: Prefetch) -> HttpResponse:
    """Change the prefetch of a channel's consumers while they run; 0 is no limit."""
    await ask(request, "channel.prefetch", name=name, prefetch=body.prefetch)
    return done()


@router.get("/consumers")
async def list_consumers(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Consumers in all vhosts the caller may use."""
    return await rows(request, "consumers", query)


@router.get("/consumers/{seg:vhost}")
async def list_consumers_of(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Consumers in one vhost."""
    return await rows(request, "consumers", query, vhost=vhost)


@router.delete(
    "/consumers/{seg:vhost}/{seg:connection}/{seg:channel}/{seg:tag}", response={204: None}
)
async def cancel_consumer(
    request: HttpRequest, vhost: str, connection: str, channel: str, tag: str
) -> HttpResponse:
    """Cancel a consumer, named by its connection, the number of its channel and its tag."""
    if not (channel.isascii() and channel.isdecimal() and len(channel) < 6):
        raise Http404
    await ask(
        request,
        "consumer.cancel",
        vhost=vhost,
        connection=connection,
        channel=int(channel),
        consumer_tag=tag,
    )
    return done()


def _reason(request: HttpRequest) -> str:
    return header_text(request, "X-Reason") or REASON
