"""Permissions: patterns of names a user may configure, write and read, and of routing keys."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api.ask import ask, done, put_answer
from api.identity import ADMINISTRATOR
from api.listing import ListQuery, row, rows
from api.shapes import Text

router = Router(tags=["Permissions"], auth=ADMINISTRATOR)


class Permission(Schema):
    configure: Text
    write: Text
    read: Text


class TopicPermission(Schema):
    exchange: Text
    write: Text
    read: Text


@router.get("/permissions")
async def list_permissions(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """All permission rows."""
    return await rows(request, "permissions", query)


@router.get("/permissions/{seg:vhost}/{seg:user}")
async def get_permission(request: HttpRequest, vhost: str, user: str) -> Any:
    """What a user may do in a vhost."""
    return await row(request, "permissions", vhost=vhost, user=user)


@router.put("/permissions/{seg:vhost}/{seg:user}", response={201: None, 204: None})
async def put_permission(
    request: HttpRequest, vhost: str, user: str, body: Permission
) -> HttpResponse:
    """Set what a user may do in a vhost. All three patterns are needed."""
    return put_answer(await ask(request, "permission.put", vhost=vhost, user=user, **body.dict()))


@router.delete("/permissions/{seg:vhost}/{seg:user}", response={204: None})
async def delete_permission(request: HttpRequest, vhost: str, user: str) -> HttpResponse:
    """Take a user's access to a vhost away."""
    await ask(request, "permission.delete", vhost=vhost, user=user)
    return done()


@router.get("/topic-permissions")
async def list_topic_permissions(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """All topic permission rows."""
    return await rows(request, "topic-permissions", query)


@router.get("/topic-permissions/{seg:vhost}/{seg:user}")
async def get_topic_permissions(request: HttpRequest, vhost: str, user: str) -> Any:
    """A user's topic permissions in a vhost, one row an exchange."""
    return await rows(request, "topic-permissions", vhost=vhost, user=user)


@router.put("/topic-permissions/{seg:vhost}/{seg:user}", response={201: None, 204: None})
async def put_topic_permission(
    request: HttpRequest, vhost: str, user: str, body: TopicPermission
) -> HttpResponse:
    """Set which routing keys a user may use on a topic exchange."""
    return put_answer(
        await ask(request, "topic-permission.put", vhost=vhost, user=user, **body.dict())
    )


@router.delete("/topic-permissions/{seg:vhost}/{seg:user}", response={204: None})
async def delete_topic_permissions(request: HttpRequest, vhost: str, user: str) -> HttpResponse:
    """Remove a user's topic permissions in a vhost."""
    await ask(request, "topic-permission.delete", vhost=vhost, user=user)
    return done()


@router.delete("/topic-permissions/{seg:vhost}/{seg:user}/{seg:exchange}", response={204: None})
async def delete_topic_permission(
    request: HttpRequest, vhost: str, user: str, exchange: str
) -> HttpResponse:
    """Remove a user's topic permissions on one exchange."""
    await ask(request, "topic-permission.delete", vhost=vhost, user=user, exchange=exchange)
    return done()
