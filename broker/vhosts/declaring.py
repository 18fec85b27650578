"""What a declaration may say: of a queue or an exchange that is there, and of a new one."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

from broker.fields.codec import octets
from broker.queues import types as queue_types
from broker.queues.types import MessageQueue
from broker.routing.exchange import BoundExchange
from broker.routing.types import NOT_BUILT, TYPES
from broker.schema import arguments as argument_table
from broker.schema.errors import AccessRefused, PreconditionFailed, ResourceLocked, describe
from broker.vhosts.changes import entry


def server_name() -> str:
    """A name for a queue that a client declares without one: `amq.gen-` and 22 characters, as in
    RabbitMQ."""
    return f"amq.gen-{base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"


def check_name(kind: str, name: str) -> None:
    """Raises AccessRefused or PreconditionFailed for a name that a client cannot give."""
    if not name:
        raise PreconditionFailed(f"the {kind} name is empty")
    if name.startswith("amq."):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'")
    if len(octets(name)) > 255:
        raise PreconditionFailed(f"the {kind} name is longer than 255 bytes")


def check_room(resource: str, vhost: str, there: int, most: int, kind: str) -> None:
    """Raises PreconditionFailed where a vhost has as many objects of a kind, such as `queues`, as
    the settings allow: what is kept for one user cannot be used by another."""
    if there >= most:
        raise PreconditionFailed(
            f"cannot declare {resource}: vhost '{vhost}' has {there} {kind}, and no more than "
            f"{most} are allowed ({kind}_max): delete some, or have the setting raised"
        )


def locked(resource: str) -> ResourceLocked:
    """A queue that is exclusive to another connection, or not exclusive though it should be."""
    return ResourceLocked(
        f"cannot obtain exclusive access to locked {resource}. It could be originally declared on "
        "another connection or the exclusive property value does not match that of the original "
        "declaration."
    )


def check_same_queue(
    resource: str,
    current: MessageQueue,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: dict[str, Any],
    default_type: str,
) -> None:
    """Raises ResourceLocked or PreconditionFailed where a queue that is there is another one.
    Without a type it is one of the vhost's default type, too."""
    if current.exclusive != exclusive:
        raise locked(resource)
    argument_table.check_property(resource, "durable", current.durable, durable and not exclusive)
    argument_table.check_property(resource, "auto_delete", current.auto_delete, auto_delete)
    if "x-queue-type" not in arguments and default_type == current.arguments.get("x-queue-type"):
        arguments = {**arguments, "x-queue-type": default_type}
    argument_table.check_equivalent("queue", resource, current.arguments, arguments)


def check_same_exchange(
    resource: str,
    current: BoundExchange,
    *,
    type: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Mapping[str, Any],
) -> None:
    """Raises PreconditionFailed where an exchange that is there is another one."""
    argument_table.check_property(resource, "type", current.type, type)
    argument_table.check_property(resource, "durable", current.durable, durable)
    argument_table.check_property(resource, "auto_delete", current.auto_delete, auto_delete)
    argument_table.check_property(resource, "internal", current.internal, internal)
    argument_table.check_equivalent("exchange", resource, current.arguments, arguments)


def check_new_queue(
    name: str, vhost: str, *, durable: bool, auto_delete: bool, arguments: dict[str, Any]
) -> None:
    """Raises AccessRefused or PreconditionFailed for a queue that a definitions file cannot
    bring."""
    check_name("queue", name)
    given: dict[str, Any] = {
        "durable": durable,
        "exclusive": False,
        "auto_delete": auto_delete,
        "arguments": arguments,
    }
    queue_types.check(describe("queue", name, vhost), **given)
    check_representable("queue.declare", {"queue": name, **given})


def check_new_exchange(
    name: str,
    vhost: str,
    type: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, Any],
) -> BoundExchange:
    """Such an exchange, which is part of nothing. Raises AccessRefused or PreconditionFailed."""
    resource = describe("exchange", name, vhost)
    check_exchange_type(resource, type)
    check_name("exchange", name)
    argument_table.check("exchange", arguments, resource)
    TYPES[type].check_arguments(arguments)
    given: dict[str, Any] = {
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": arguments,
    }
    check_representable("exchange.declare", {"exchange": name, "type": type, **given})
    return TYPES[type](name, **given)


def check_representable(method: str, change: dict[str, Any]) -> None:
    """Raises PreconditionFailed for what AMQP, and so the journal, has no form for."""
    try:
        entry(method, change, 0)
    except ValueError as error:
        raise PreconditionFailed(f"{method} cannot be kept: {error}") from None


def check_exchange_type(resource: str, type: str) -> None:
    """Raises PreconditionFailed for a type that is not there."""
    if type in TYPES:
        return
    if type in NOT_BUILT:
        raise PreconditionFailed(
            f"invalid exchange type '{type}' for {resource}: this broker does not carry it out yet"
        )
    raise PreconditionFailed(f"unknown exchange type '{type}'")
