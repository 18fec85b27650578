"""Verbs on queues, exchanges, bindings and connections, with AMQP's permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.access import Rights
from broker.fields import properties
from broker.schema.control_schema import (
    BindingCreate,
    BindingDelete,
    ConnectionClose,
    ConnectionCloseUser,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangePublish,
    Item,
    QueueDeclare,
    QueueDelete,
    QueueGet,
    QueuePause,
    QueuePurge,
    QueueRestart,
    QueueResume,
)
from broker.schema.errors import (
    AccessRefused,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
    describe,
)
from broker.server.control.binding_rows import find_binding, properties_key
from broker.server.control.connection_rows import Connections
from broker.server.control.encoding import encode_rows, full_name
from broker.server.control.getting import sized, take
from broker.server.control.requests import (
    Caller,
    Request,
    RequestError,
    bad_request,
    handles,
    not_found,
)
from broker.server.control.views import name_of
from broker.server.pace import Pace, paced
from broker.wire.commands import added_queues
from broker.wire.commands.publishing import check_properties, check_target
from broker.wire.settling import purged

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.vhosts.vhost import Published, VHost

_REASON_MAX = 255
HTTP_API = "HTTP API"
"""Stands where the firehose names a connection, and the usage feed a client."""


@handles("queue.declare")
async def queue_declare(request: Request[QueueDeclare]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    if args.exclusive:
        raise bad_request("an exclusive queue lives with a connection; declare it over AMQP")
    name = _printable(args.name)
    if not name:
        raise bad_request("queue name is empty")
    caller.rights(vhost.name).check_declare(
        "queue", name, args.arguments, is_new=not vhost.has_queue(name)
    )
    _, created = vhost.declare_queue(
        name,
        durable=args.durable,
        auto_delete=args.auto_delete,
        arguments=args.arguments,
        user=caller.name,
    )
    return {"created": created}


@handles("queue.delete")
async def queue_delete(request: Request[QueueDelete]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "configure", "queue", name)
    queue = queue_of(vhost, name, caller, use=False)
    messages = vhost.delete_queue(
        name, if_unused=args.if_unused, if_empty=args.if_empty, owner=queue.owner
    )
    await _over(vhost)
    return {"messages": messages}


@handles("queue.purge")
async def queue_purge(request: Request[QueuePurge]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "read", "queue", name)
    return {"messages": await paced(purged(queue_of(vhost, name, caller, use=False)))}


@handles("queue.pause")
async def queue_pause(request: Request[QueuePause]) -> Any:
    return _set_paused(request.caller, request.args, True)


@handles("queue.resume")
async def queue_resume(request: Request[QueueResume]) -> Any:
    return _set_paused(request.caller, request.args, False)


def _set_paused(caller: Caller, args: QueuePause | QueueResume, paused: bool) -> dict[str, bool]:
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "configure", "queue", name)
    queue = queue_of(vhost, name, caller, use=False)
    return {"changed": vhost.set_paused(queue, paused)}


@handles("queue.restart")
async def queue_restart(request: Request[QueueRestart]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "configure", "queue", name)
    queue = queue_of(vhost, name, caller, use=False)
    owners = {id(queue)} | {id(consumer.queue) for consumer in queue.consumers}
    if not request.broker.persister.failed_reads.retry(owners):
        raise bad_request(
            f"{describe('queue', name, vhost.name)} is {queue.state}: only a queue that waits to "
            "read again what the disk failed to read can be restarted"
        )
    return {}


@handles("queue.get")
async def queue_get(request: Request[QueueGet]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "read", "queue", name)
    if args.count < 0:
        raise bad_request("count is negative")
    queue = queue_of(vhost, name, caller, use=True)
    requeue = args.ackmode in ("ack_requeue_true", "reject_requeue_true")
    acked = args.ackmode == "ack_requeue_false"
    note = partial(_note_use, request, vhost)
    messages = await take(
        queue,
        args.count,
        requeue=requeue,
        acked=acked,
        truncate=args.truncate,
        bytes_max=args.bytes_max,
        note=note,
    )
    if vhost.tracer.on:
        who = (HTTP_API, 0, caller.name)
        pace = Pace()
        for one in messages:
            await pace()
            listed = properties.encode(one["properties"])
            vhost.tracer.delivered(
                who,
                one["exchange"],
                one["routing_key"],
                listed,
                one["payload"],
                queue.name,
                one["redelivered"],
            )
    return await encode_rows(messages)


@handles("exchange.declare")
async def exchange_declare(request: Request[ExchangeDeclare]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = _printable(_plain_name(args.name))
    caller.rights(vhost.name).check_declare(
        "exchange", name, args.arguments, is_new=name not in vhost.exchanges
    )
    created = vhost.declare_exchange(
        name,
        args.type,
        durable=args.durable,
        auto_delete=args.auto_delete,
        internal=args.internal,
        arguments=args.arguments,
    )
    return {"created": created}


@handles("exchange.delete")
async def exchange_delete(request: Request[ExchangeDelete]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.exchanges, _plain_name(args.name))
    caller.check(vhost.name, "configure", "exchange", name)
    _exchange(vhost, name)
    vhost.delete_exchange(name, if_unused=args.if_unused)
    await _over(vhost)
    return {}


@handles("exchange.publish")
async def exchange_publish(request: Request[ExchangePublish]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.exchanges, _plain_name(args.name))
    if len(args.routing_key.encode("utf-8", "surrogatepass")) > 255:
        # Before the patterns of topic permissions look at it: a longer one holds the loop.
        raise bad_request("routing_key is longer than 255 bytes")
    rights = caller.rights(vhost.name)
    # Rights come before the node's state and limits: those are for users who may publish here.
    exchange = check_target(rights, vhost, name, args.routing_key)
    if request.broker.alarms:
        raise RequestError(
            "blocked",
            f"nothing is published while an alarm is in force: {request.broker.alarm_reason}",
        )
    limit = request.broker.config.max_message_size
    if len(args.payload) > limit:
        raise PreconditionFailed(
            f"message size {len(args.payload)} is larger than configured max size {limit}"
        )
    try:
        encoded = properties.encode(args.properties)
    except ValueError as error:
        raise bad_request(str(error)) from None
    told = properties.decode(encoded)
    most = request.broker.config.routing_keys_max
    keys = check_properties(rights, None, exchange, args.routing_key, told, most)
    added = added_queues.of_key(args.routing_key) if not name and len(keys) == 1 else None
    queues = added.targets(request.broker, vhost, args.routing_key) if added is not None else None
    if vhost.tracer.on:
        found = queues
        if found is None:
            found = vhost.routes.route(exchange, keys, told.get("headers", {}), told)
        who = (HTTP_API, 0, caller.name)
        vhost.tracer.published(who, name, args.routing_key, encoded, args.payload, found)
    published: Published = await paced(
        vhost.publishing(exchange, keys, told, args.payload, queues, (caller.name or "", HTTP_API))
    )
    routed = bool(published.taken)
    request.broker.stats.publish_from_api(vhost.name, routed)
    outcomes = ["publish", "routed" if published.queues else "drop_unroutable"]
    is_refused = published.taken < published.queues
    if is_refused:
        outcomes.append("refused")
    _note_use(request, vhost, sized(outcomes, len(args.payload)))
    if is_refused:
        # As over AMQP, where a publish that one of several queues refuses gets a nack.
        raise bad_request("Unable to publish message. Check queue limits.")
    if told.get("delivery_mode") == 2:
        await request.broker.synced(records=True)
    return {"routed": routed}


@handles("binding.create")
async def binding_create(request: Request[BindingCreate]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    source, destination = _ends(vhost, args)
    rights = _check_binding(caller, vhost, source, destination, args.destination_type)
    _both_ends(vhost, source, destination, args.destination_type, caller)
    rights.check_topics("read", vhost.exchanges[source], (args.routing_key,))
    created = vhost.bind(
        source, destination, args.destination_type, args.routing_key, args.arguments
    )
    key = properties_key(args.routing_key, args.arguments)
    return {"created": created, "properties_key": key}


@handles("binding.delete")
async def binding_delete(request: Request[BindingDelete]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    source, destination = _ends(vhost, args)
    rights = _check_binding(caller, vhost, source, destination, args.destination_type)
    _both_ends(vhost, source, destination, args.destination_type, caller)
    found = find_binding(vhost, source, destination, args.destination_type, args.properties_key)
    if found is None:
        raise not_found("Not Found")
    rights.check_topics("read", vhost.exchanges[source], (found.routing_key,))
    vhost.unbind(source, destination, args.destination_type, found.routing_key, found.arguments)
    await _over(vhost)
    return {}


@handles("connection.close")
async def connection_close(request: Request[ConnectionClose]) -> Any:
    broker, caller = request.broker, request.caller
    connection = Connections(broker).find(caller, Item(noun="connections", name=request.args.name))
    caller.require_owner(name_of(connection.user))
    connection.close(320, request.args.reason[:_REASON_MAX])
    return {}


@handles("connection.close_user")
async def connection_close_user(request: Request[ConnectionCloseUser]) -> Any:
    args = request.args
    request.caller.require_owner(args.user)
    return {"closed": await close_connections_of(request.broker, args.user, args.reason)}


async def close_connections_of(broker: Broker, user: str, reason: str) -> int:
    """Closes every connection of a user with 320 and the reason; how many there were."""
    return await _close_connections(
        broker, [one for one in broker.connections.values() if name_of(one.user) == user], reason
    )


async def close_connections_to(broker: Broker, vhost: VHost, reason: str) -> int:
    """Closes every connection to a vhost with 320 and the reason; how many there were."""
    return await _close_connections(
        broker, [one for one in broker.connections.values() if one.vhost is vhost], reason
    )


async def _close_connections(broker: Broker, connections: list[Any], reason: str) -> int:
    closed = 0
    waiting = iter(connections)
    try:
        for connection in waiting:
            if connection.id in broker.connections:
                connection.close(320, reason[:_REASON_MAX])
                closed += 1
            await asyncio.sleep(0)
    finally:
        # Who asked went away in the middle: what they asked for is done all the same.
        for connection in waiting:
            connection.close(320, reason[:_REASON_MAX])
    return closed


def _note_use(request: Request[Any], vhost: VHost, counts: Mapping[str, int]) -> None:
    """What a user's request adds to the user's lines in the usage feed."""
    if request.caller.name is not None:
        for feature in request.broker.features:
            feature.used(vhost, request.caller.name, HTTP_API, counts)


async def _over(vhost: VHost) -> None:
    """Returns when nothing of what was deleted is left, such as its bindings."""
    over = asyncio.Event()
    vhost.slices.over(over.set)
    await over.wait()


def queue_of(vhost: VHost, name: str, caller: Caller, *, use: bool) -> Any:
    """The queue of that name. Raises NotFound, or ResourceLocked if it is exclusive: only its
    connection may `use` it."""
    queue = vhost.queues.get(name)
    if queue is None:
        raise NotFound(f"no {describe('queue', name, vhost.name)}")
    # Only its connection uses an exclusive queue; an administrator may purge or delete it.
    if queue.owner is not None and (use or not caller.sight.has("administrator")):
        where = describe("queue", name, vhost.name)
        raise ResourceLocked(
            f"cannot obtain exclusive access to locked {where}. It could be originally declared "
            "on another connection or the exclusive property value does not match that of the "
            "original declaration."
        )
    return queue


def _exchange(vhost: VHost, name: str) -> Any:
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        raise NotFound(f"no {describe('exchange', name, vhost.name)}")
    return exchange


def _check_binding(
    caller: Caller, vhost: VHost, source: str, destination: str, destination_type: str
) -> Rights:
    rights = caller.rights(vhost.name)
    rights.check_binding(source, destination, destination_type)
    if not source or (destination_type == "exchange" and not destination):
        raise AccessRefused("operation not permitted on the default exchange")
    return rights


def _both_ends(
    vhost: VHost, source: str, destination: str, destination_type: str, caller: Caller
) -> None:
    _exchange(vhost, source)
    if destination_type == "exchange":
        _exchange(vhost, destination)
    else:
        queue_of(vhost, destination, caller, use=True)


def _ends(vhost: VHost, args: BindingCreate | BindingDelete) -> tuple[str, str]:
    """The names of what a binding is between."""
    names = vhost.queues if args.destination_type == "queue" else vhost.exchanges
    return (
        full_name(vhost.exchanges, _plain_name(args.source)),
        full_name(names, _plain_name(args.destination)),
    )


def _plain_name(name: str) -> str:
    return "" if name == "amq.default" else name


def _printable(name: str) -> str:
    """The name without line breaks, which RabbitMQ drops on declare; at most 255 bytes."""
    name = name.replace("\r", "").replace("\n", "")
    if len(name.encode("utf-8", "surrogatepass")) > 255:
        raise bad_request("the name is longer than 255 bytes")
    return name
