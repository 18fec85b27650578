"""Methods of class queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.schema.errors import AMQPError
from broker.wire.commands import added_queues
from broker.wire.commands.rules import (
    answer,
    answer_when_over,
    change_binding,
    check_any,
    fill_when_over,
    plain_name,
    queue_name,
)
from broker.wire.long_work import LongWork
from broker.wire.settling import purged

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection


def queue_declare(
    connection: Connection,
    channel: Channel,
    queue: str,
    passive: bool,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    name = plain_name(queue)
    if added_queues.of_name(name) or (passive and _is_requester(connection, name)):
        _answer_pseudo(channel, no_wait, name)
        return
    vhost = connection.vhost
    if passive:
        check_any(connection, "queue", name)
        found = vhost.asked_for(name, connection)
    else:
        is_new = not vhost.has_queue(name)
        if is_new:
            name = vhost.new_name(name)
        connection.rights.check_declare("queue", name, arguments, is_new=is_new)
        found, created = vhost.declare_queue(
            name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
            owner=connection if exclusive else None,
            is_server_named=not queue,
            user=connection.user,
        )
        if created and found.durable:
            channel.replies.hold()
    channel.last_queue = found.name
    # What consumers can take is not counted.
    found.deliver_pending()
    answer(
        channel,
        no_wait,
        "queue.declare-ok",
        queue=found.name,
        message_count=found.messages_ready,
        consumer_count=found.consumer_count,
    )


def _is_requester(connection: Connection, name: str) -> bool:
    """Whether a requester of this vhost gets its replies by this name."""
    added = added_queues.of_key(name)
    return added is not None and bool(added.targets(connection.host, connection.vhost, name))


def _answer_pseudo(channel: Channel, no_wait: bool, name: str) -> None:
    """Clients ask so whether direct reply-to is there, or whether a requester still is."""
    answer(channel, no_wait, "queue.declare-ok", queue=name, message_count=0, consumer_count=1)


def queue_bind(
    connection: Connection,
    channel: Channel,
    queue: str,
    exchange: str,
    routing_key: str,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    name = queue_name(connection, channel, queue)
    if not queue and not routing_key:
        routing_key = name
    change_binding(
        connection, channel, plain_name(exchange), name, "queue", routing_key, arguments, bind=True
    )
    answer(channel, no_wait, "queue.bind-ok")


def queue_unbind(
    connection: Connection,
    channel: Channel,
    queue: str,
    exchange: str,
    routing_key: str,
    arguments: dict[str, Any],
) -> None:
    name = queue_name(connection, channel, queue)
    if not queue and not routing_key:
        routing_key = name
    since = connection.vhost.slices.begun
    change_binding(
        connection, channel, plain_name(exchange), name, "queue", routing_key, arguments, bind=False
    )
    answer_when_over(connection, channel, since, False, "queue.unbind-ok")


def queue_purge(connection: Connection, channel: Channel, queue: str, no_wait: bool) -> None:
    name = queue_name(connection, channel, queue)
    connection.check("read", "queue", name)
    found = connection.vhost.queue(name, connection)

    def steps() -> Iterator[None]:
        count = yield from purged(found)
        if connection.is_open:
            if count and found.durable:
                channel.replies.hold(False)
            answer(channel, no_wait, "queue.purge-ok", message_count=count)

    LongWork(connection, steps()).begin()


def queue_delete(
    connection: Connection,
    channel: Channel,
    queue: str,
    if_unused: bool,
    if_empty: bool,
    no_wait: bool,
) -> None:
    name = queue_name(connection, channel, queue)
    connection.check("configure", "queue", name)
    found = connection.vhost.queues.get(name)
    since = connection.vhost.slices.begun
    # The channel's own consumers of the queue get basic.cancel, behind the answer.
    place = None if no_wait else channel.replies.reserve()
    try:
        count = connection.vhost.delete_queue(
            name, if_unused=if_unused, if_empty=if_empty, owner=connection
        )
    except AMQPError:
        if place is not None:
            channel.replies.fill(place, b"")
        raise
    if found is not None and found.durable:
        channel.replies.hold()
    if place is not None:
        fill_when_over(connection, channel, since, place, "queue.delete-ok", message_count=count)
