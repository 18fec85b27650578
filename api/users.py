"""Users, their limits, password hashes and login counts."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api.ask import ask, done, given, put_answer
from api.identity import ADMINISTRATOR, BasicOrSession
from api.listing import ListQuery, SampleQuery, row, rows
from api.nodes import get_node
from api.shapes import Number, Text
from management.broker_client import BrokerError

router = Router(tags=["Users"], auth=ADMINISTRATOR)

HASHING_ALGORITHM = "rabbit_password_hashing_sha256"


class User(Schema):
    tags: list[Text] | Text | None = None
    password: Text | None = None
    password_hash: Text | None = None
    hashing_algorithm: Text | None = None


class Names(Schema):
    users: list[Text]


class Password(Schema):
    password: Text


class Limit(Schema):
    value: Number


@router.get("/users")
async def list_users(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """All users."""
    return await rows(request, "users", query)


@router.get("/users/without-permissions")
async def list_users_without_permissions(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Users that may not use any vhost."""
    return await rows(request, "users", query, without_permissions=True)


@router.post("/users/bulk-delete", response={204: None})
async def delete_users(request: HttpRequest, body: Names) -> HttpResponse:
    """Delete several users, or none of them if one does not exist."""
    await ask(request, "users.delete", names=body.users)
    return done()


@router.get("/users/{seg:user}")
async def get_user(request: HttpRequest, user: str) -> Any:
    """One user, with the hash of the password."""
    return await row(request, "users", name=user)


@router.put("/users/{seg:user}", response={201: None, 204: None})
async def put_user(request: HttpRequest, user: str, body: User) -> HttpResponse:
    """Create or change a user. Without password and hash the user cannot log in by password."""
    if body.tags is None:
        raise BrokerError(400, "bad_request", "tags_not_present")
    return put_answer(await ask(request, "user.put", name=user, **given(**body.dict())))


@router.delete("/users/{seg:user}", response={204: None})
async def delete_user(request: HttpRequest, user: str) -> HttpResponse:
    """Delete a user with its permissions; its connections are closed."""
    await ask(request, "user.delete", name=user)
    return done()


@router.get("/users/{seg:user}/permissions")
async def list_user_permissions(request: HttpRequest, user: str, query: Query[ListQuery]) -> Any:
    """What a user may do, by vhost."""
    await row(request, "users", name=user)
    return await rows(request, "permissions", query, user=user)


@router.get("/users/{seg:user}/topic-permissions")
async def list_user_topic_permissions(
    request: HttpRequest, user: str, query: Query[ListQuery]
) -> Any:
    """Which routing keys a user may use, by vhost and exchange."""
    await row(request, "users", name=user)
    return await rows(request, "topic-permissions", query, user=user)


@router.get("/users/{seg:user}/queues")
async def list_user_queues(request: HttpRequest, user: str, query: Query[ListQuery]) -> Any:
    """The queues that a user declared. Of queues of definitions files, and of those that an older
    version declared, that is not known."""
    await row(request, "users", name=user)
    return await rows(request, "queues", query, user=user)


@router.get("/user-limits", auth=BasicOrSession())
async def list_user_limits(request: HttpRequest) -> Any:
    """Limits of all users, or of the caller."""
    return await rows(request, "user-limits")


@router.get("/user-limits/{seg:user}", auth=BasicOrSession())
async def get_user_limits(request: HttpRequest, user: str) -> Any:
    """Limits of one user, in a list."""
    return await rows(request, "user-limits", user=user)


@router.put("/user-limits/{seg:user}/{seg:name}", response={204: None})
async def put_user_limit(request: HttpRequest, user: str, name: str, body: Limit) -> HttpResponse:
    """Set `max-connections` or `max-channels`; -1 is none."""
    await ask(request, "user-limit.put", user=user, name=name, value=body.value)
    return done()


@router.delete("/user-limits/{seg:user}/{seg:name}", response={204: None})
async def delete_user_limit(request: HttpRequest, user: str, name: str) -> HttpResponse:
    """Remove a limit."""
    await ask(request, "user-limit.delete", user=user, name=name)
    return done()


@router.get("/auth/hash_password/{seg:password}")
async def hash_password(request: HttpRequest, password: str) -> Any:
    """The hash of a password, for definitions files. PUT keeps the password out of logs."""
    return {"ok": (await ask(request, "password.hash", password=password))["result"]}


@router.put("/auth/hash_password")
async def hash_password_in_body(request: HttpRequest, body: Password) -> Any:
    """The hash of a password, for definitions files."""
    result = (await ask(request, "password.hash", password=body.password))["result"]
    return {"password_hash": result, "hashing_algorithm": HASHING_ALGORITHM}


@router.get("/auth/attempts/{seg:node}", auth=BasicOrSession())
async def auth_attempts(request: HttpRequest, node: str) -> Any:
    """Logins counted by protocol."""
    await get_node(request, node, SampleQuery())
    return await ask(request, "auth.attempts")


@router.get("/auth/attempts/{seg:node}/source", auth=BasicOrSession())
async def auth_attempts_by_source(request: HttpRequest, node: str) -> Any:
    """Logins counted by protocol, user and address."""
    await get_node(request, node, SampleQuery())
    return await ask(request, "auth.attempts", by_source=True)


@router.delete("/auth/attempts/{seg:node}", response={204: None})
async def reset_auth_attempts(request: HttpRequest, node: str) -> HttpResponse:
    """Start the counts anew."""
    await get_node(request, node, SampleQuery())
    await ask(request, "auth.attempts.reset")
    return done()


@router.delete("/auth/attempts/{seg:node}/source", response={204: None})
async def reset_auth_attempts_by_source(request: HttpRequest, node: str) -> HttpResponse:
    """Start the counts anew."""
    return await reset_auth_attempts(request, node)
