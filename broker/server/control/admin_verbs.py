"""Verbs of administration: vhosts, users, permissions, limits."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.access import BadSetting, passwords
from broker.queues import types as queue_types
from broker.schema.control_schema import (
    PermissionDelete,
    PermissionPut,
    TopicPermissionDelete,
    TopicPermissionPut,
    UserDelete,
    UserLimitDelete,
    UserLimitPut,
    UserPut,
    UsersDelete,
    VHostDelete,
    VHostLimitDelete,
    VHostLimitPut,
    VHostProtect,
    VHostPut,
)
from broker.server.control.messaging_verbs import close_connections_of, close_connections_to
from broker.server.control.requests import (
    Request,
    RequestError,
    bad_request,
    handles,
    not_found,
)
from broker.server.control.rosters import rosters_of
from broker.server.control.tracing_verbs import set_tracing
from broker.server.importing import prepared
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.vhost")

FULL = ".*"

TRY_AGAIN_S = 1.0
"""How long the deletion of a vhost waits for a disk that is full."""


@handles("vhost.put")
async def vhost_put(request: Request[VHostPut]) -> Any:
    args = request.args
    created = await put_vhost(
        request.broker,
        args.name,
        description=args.description,
        tags=words(args.tags) if args.tags is not None else None,
        default_queue_type=args.default_queue_type,
    )
    if args.protected_from_deletion is not None:
        request.broker.definitions.change_vhost(
            args.name, protected_from_deletion=args.protected_from_deletion
        )
    if args.tracing is not None:
        await set_tracing(request.broker, request.broker.vhosts[args.name], args.tracing)
    if created and request.caller.user is not None:
        request.broker.access.put_permission(request.caller.name, args.name, FULL, FULL, FULL)
    return {"created": created}


@handles("vhost.delete")
async def vhost_delete(request: Request[VHostDelete]) -> Any:
    broker, name = request.broker, request.args.name
    if name not in broker.vhosts:
        raise not_found("vhost_not_found")
    if broker.vhosts[name].protected_from_deletion:
        raise RequestError(
            "precondition_failed",
            f"Refusing to delete virtual host '{name}' because it is protected from deletion",
        )
    # First the name and what is kept by it: no client can open the vhost while the connections to
    # it are being closed, and a vhost that gets the name meanwhile is another one.
    vhost = broker.definitions.remove_vhost(name)
    broker.access.forget_vhost(name)
    policies = broker.policies.forget_vhost(name)
    broker.emit("vhost.deleted", {"name": name})
    # It is done to its end, whether who asked goes away or not.
    over = asyncio.Event()
    broker.run_task(_delete(broker, vhost, policies, over))
    await over.wait()
    return {}


async def _delete(
    broker: Broker, vhost: VHost, policies: Iterator[None], over: asyncio.Event
) -> None:
    """Deletes what is in a vhost that is taken out, slice by slice, frees its `policies`, and sets
    `over`.

    No file goes before the vhost is out of the list on disk: a start behind a kill finds all of it,
    or no vhost and a directory to remove."""
    try:
        await close_connections_to(broker, vhost, f"vhost '{vhost.name}' is deleted")
        await _list_on_disk(broker)
        pace = Pace()
        for _ in itertools.chain(vhost.delete(), policies):
            await pace()
        await rosters_of(broker).forget(vhost, pace)
        if vhost.name not in broker.vhosts:
            broker.stats.vhost_deleted(vhost.name)
        await broker.synced()
        vhost.drop_journal()
    except Exception:
        log.exception("vhost '%s': deletion incomplete; resumes at the next start", vhost.name)
    finally:
        over.set()


async def _list_on_disk(broker: Broker) -> None:
    """Returns when the list of vhosts is on disk as it is now, however long that is full."""
    while True:
        try:
            await broker.synced()
        except OSError as error:
            log.error("the list of vhosts cannot be written: %s", error)
            await asyncio.sleep(TRY_AGAIN_S)
        else:
            return


@handles("vhost.protect")
async def vhost_protect(request: Request[VHostProtect]) -> Any:
    args = request.args
    if args.name not in request.broker.vhosts:
        raise not_found("vhost_not_found")
    request.broker.definitions.change_vhost(args.name, protected_from_deletion=args.protected)
    return {}


@handles("user.put")
async def user_put(request: Request[UserPut]) -> Any:
    args = request.args
    if args.password is not None and args.password_hash is not None:
        raise bad_request("Cannot set both password and password_hash")
    algorithm = args.hashing_algorithm or passwords.SHA256
    password_hash = args.password_hash or ""
    if args.password:
        try:
            passwords.check_length(args.password, request.broker.config.password_length_min)
        except ValueError as error:
            raise bad_request(f"user '{args.name}': {error}") from None
        password_hash = await request.broker.logins.hash(args.password)
        algorithm = passwords.ARGON2ID
    created = put_user(
        request.broker, args.name, words(args.tags), password_hash, algorithm, args.limits
    )
    return {"created": created}


@handles("user.delete")
async def user_delete(request: Request[UserDelete]) -> Any:
    _user_exists(request.broker, request.args.name)
    await _delete_user(request.broker, request.args.name)
    return {}


@handles("users.delete")
async def users_delete(request: Request[UsersDelete]) -> Any:
    names = list(dict.fromkeys(request.args.names))
    for name in names:
        if name not in request.broker.access.users:
            raise bad_request(f"no_such_user: {name[:100]}")
    pace = Pace()
    for name in names:
        # Another request may have deleted it meanwhile.
        if name in request.broker.access.users:
            await _delete_user(request.broker, name)
        await pace()
    return {"deleted": len(names)}


async def _delete_user(broker: Broker, name: str) -> None:
    broker.access.delete_user(name)
    broker.emit("user.deleted", {"name": name})
    await close_connections_of(broker, name, f"user '{name}' is deleted")


@handles("permission.put")
async def permission_put(request: Request[PermissionPut]) -> Any:
    args = request.args
    _both_exist(request.broker, args.vhost, args.user)
    created = _put(
        request.broker.access.put_permission,
        args.user,
        args.vhost,
        args.configure,
        args.write,
        args.read,
    )
    request.broker.emit("permission.changed", {"vhost": args.vhost, "user": args.user})
    return {"created": created}


@handles("permission.delete")
async def permission_delete(request: Request[PermissionDelete]) -> Any:
    args = request.args
    try:
        request.broker.access.delete_permission(args.user, args.vhost)
    except KeyError:
        raise not_found("Not Found") from None
    request.broker.emit("permission.changed", {"vhost": args.vhost, "user": args.user})
    return {}


@handles("topic-permission.put")
async def topic_permission_put(request: Request[TopicPermissionPut]) -> Any:
    args = request.args
    _both_exist(request.broker, args.vhost, args.user)
    created = _put(
        request.broker.access.put_topic_permission,
        args.user,
        args.vhost,
        args.exchange,
        args.write,
        args.read,
    )
    request.broker.emit("permission.changed", {"vhost": args.vhost, "user": args.user})
    return {"created": created}


@handles("topic-permission.delete")
async def topic_permission_delete(request: Request[TopicPermissionDelete]) -> Any:
    args = request.args
    try:
        request.broker.access.delete_topic_permission(args.user, args.vhost, args.exchange)
    except KeyError:
        raise not_found("Not Found") from None
    request.broker.emit("permission.changed", {"vhost": args.vhost, "user": args.user})
    return {}


@handles("vhost-limit.put")
async def vhost_limit_put(request: Request[VHostLimitPut]) -> Any:
    request.caller.vhost(request.args.vhost)
    args = request.args
    _put(request.broker.access.parameters.put_vhost_limit, args.vhost, args.name, args.value)
    return {}


@handles("vhost-limit.delete")
async def vhost_limit_delete(request: Request[VHostLimitDelete]) -> Any:
    request.caller.vhost(request.args.vhost)
    _put(
        request.broker.access.parameters.put_vhost_limit,
        request.args.vhost,
        request.args.name,
        None,
    )
    return {}


@handles("user-limit.put")
async def user_limit_put(request: Request[UserLimitPut]) -> Any:
    args = request.args
    _user_exists(request.broker, args.user)
    _put(request.broker.access.put_user_limit, args.user, args.name, args.value)
    return {}


@handles("user-limit.delete")
async def user_limit_delete(request: Request[UserLimitDelete]) -> Any:
    _user_exists(request.broker, request.args.user)
    _put(request.broker.access.put_user_limit, request.args.user, request.args.name, None)
    return {}


async def put_vhost(
    broker: Broker,
    name: str,
    *,
    description: str | None,
    tags: list[str] | None,
    default_queue_type: str | None,
) -> bool:
    """Creates a vhost or changes what is given of one; True if it is new."""
    if not name:
        raise bad_request("vhost name is empty")
    if default_queue_type in ("", "undefined"):
        default_queue_type = "classic"
    if default_queue_type is not None and default_queue_type not in queue_types.TYPES:
        raise bad_request(
            f"unsupported default_queue_type '{default_queue_type}': expected {queue_types.NAMES}"
        )
    incarnation: int | None = None
    if name not in broker.vhosts:
        [incarnation] = await prepared(broker, 1)
    if name in broker.vhosts:
        broker.definitions.change_vhost(
            name, description=description, tags=tags, default_queue_type=default_queue_type
        )
        return False
    broker.definitions.create_vhost(
        name,
        description=description or "",
        tags=tags or [],
        default_queue_type=default_queue_type or "classic",
        incarnation=incarnation,
    )
    broker.emit("vhost.created", {"name": name})
    return True


def put_user(
    broker: Broker,
    name: str,
    tags: list[str],
    password_hash: str,
    algorithm: str,
    limits: dict[str, int] | None,
) -> bool:
    """Creates or changes a user and tells everybody; True if it is new."""
    old = broker.access.users.get(name)
    user = _put(broker.access.put_user, name, tags, password_hash, algorithm, limits)
    if old is None:
        broker.emit("user.created", {"name": name})
    elif old.epoch != user.epoch:
        broker.emit("user.changed", {"name": name, "epoch": user.epoch})
    return old is None


def words(tags: list[str] | str) -> list[str]:
    """Tags from a list or from text with commas between, as RabbitMQ takes them."""
    parts = tags.split(",") if isinstance(tags, str) else tags
    return [part.strip() for part in parts if part.strip()]


def _put(change: Any, *args: Any) -> Any:
    try:
        return change(*args)
    except BadSetting as error:
        raise bad_request(str(error)) from None


def _both_exist(broker: Broker, vhost: str, user: str) -> None:
    if vhost not in broker.vhosts or user not in broker.access.users:
        raise bad_request("vhost_or_user_not_found")


def _user_exists(broker: Broker, user: str) -> None:
    if user not in broker.access.users:
        raise not_found("Not Found")
