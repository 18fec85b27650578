"""Virtual hosts and their limits."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api.ask import ask, done, given, put_answer
from api.identity import ADMINISTRATOR
from api.listing import ListQuery, SampleQuery, row, rows
from api.shapes import Flag, Number, Text

router = Router(tags=["Virtual hosts"])


class VHost(Schema):
    description: Text | None = None
    tags: list[Text] | Text | None = None
    default_queue_type: Text | None = None
    protected_from_deletion: Flag | None = None
    tracing: Flag | None = None


class Limit(Schema):
    value: Number


@router.get("/vhosts")
async def list_vhosts(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """The vhosts the caller may see."""
    return await rows(request, "vhosts", query)


@router.get("/vhosts/{seg:vhost}")
async def get_vhost(request: HttpRequest, vhost: str, query: Query[SampleQuery]) -> Any:
    """One vhost."""
    return await row(request, "vhosts", name=vhost, **query.wanted())


@router.put("/vhosts/{seg:vhost}", response={201: None, 204: None}, auth=ADMINISTRATOR)
async def put_vhost(request: HttpRequest, vhost: str, body: VHost) -> HttpResponse:
    """Create or change a vhost."""
    return put_answer(await ask(request, "vhost.put", name=vhost, **given(**body.dict())))


@router.delete("/vhosts/{seg:vhost}", response={204: None}, auth=ADMINISTRATOR)
async def delete_vhost(request: HttpRequest, vhost: str) -> HttpResponse:
    """Delete a vhost with everything in it; its connections are closed."""
    await ask(request, "vhost.delete", name=vhost)
    return done()


@router.post("/vhosts/{seg:vhost}/deletion/protection", response={204: None}, auth=ADMINISTRATOR)
async def protect_vhost(request: HttpRequest, vhost: str) -> HttpResponse:
    """Protect a vhost from deletion: DELETE answers 412 from now on."""
    await ask(request, "vhost.protect", name=vhost, protected=True)
    return done()


@router.delete("/vhosts/{seg:vhost}/deletion/protection", response={204: None}, auth=ADMINISTRATOR)
async def unprotect_vhost(request: HttpRequest, vhost: str) -> HttpResponse:
    """End the protection of a vhost from deletion."""
    await ask(request, "vhost.protect", name=vhost, protected=False)
    return done()


@router.post("/vhosts/{seg:vhost}/start/{seg:node}", response={204: None}, auth=ADMINISTRATOR)
async def start_vhost(request: HttpRequest, vhost: str, node: str) -> HttpResponse:
    """A vhost that exists runs, so this only checks that it does."""
    await row(request, "vhosts", name=vhost)
    return done()


@router.get("/vhosts/{seg:vhost}/permissions")
async def list_vhost_permissions(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Who may do what in a vhost."""
    await row(request, "vhosts", name=vhost)
    return await rows(request, "permissions", query, vhost=vhost)


@router.get("/vhosts/{seg:vhost}/topic-permissions")
async def list_vhost_topic_permissions(
    request: HttpRequest, vhost: str, query: Query[ListQuery]
) -> Any:
    """Who may use which routing keys in a vhost."""
    await row(request, "vhosts", name=vhost)
    return await rows(request, "topic-permissions", query, vhost=vhost)


@router.get("/vhosts/{seg:vhost}/connections")
async def list_vhost_connections(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Open connections to a vhost."""
    return await rows(request, "connections", query, vhost=vhost)


@router.get("/vhosts/{seg:vhost}/channels")
async def list_vhost_channels(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Open channels in a vhost."""
    return await rows(request, "channels", query, vhost=vhost)


@router.get("/vhost-limits")
async def list_vhost_limits(request: HttpRequest) -> Any:
    """Limits of the vhosts the caller may see."""
    return await rows(request, "vhost-limits")


@router.get("/vhost-limits/{seg:vhost}")
async def get_vhost_limits(request: HttpRequest, vhost: str) -> Any:
    """Limits of one vhost, in a list."""
    return await rows(request, "vhost-limits", vhost=vhost)


@router.put("/vhost-limits/{seg:vhost}/{seg:name}", response={204: None}, auth=ADMINISTRATOR)
async def put_vhost_limit(request: HttpRequest, vhost: str, name: str, body: Limit) -> HttpResponse:
    """Set `max-connections` or `max-queues`; -1 is none."""
    await ask(request, "vhost-limit.put", vhost=vhost, name=name, value=body.value)
    return done()


@router.delete("/vhost-limits/{seg:vhost}/{seg:name}", response={204: None}, auth=ADMINISTRATOR)
async def delete_vhost_limit(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Remove a limit."""
    await ask(request, "vhost-limit.delete", vhost=vhost, name=name)
    return done()
