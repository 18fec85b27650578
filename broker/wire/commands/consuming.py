"""Methods of class basic that give messages: consume, cancel, get, qos, recover."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from broker.kernel.contracts import Consumer
from broker.schema import arguments as argument_table
from broker.schema.errors import (
    AccessRefused,
    NotAllowed,
    NotImplementedYet,
    PreconditionFailed,
    ResourceLocked,
    describe,
)
from broker.wire.commands import added_queues
from broker.wire.commands.rules import answer, queue_name
from broker.wire.gets import Gets
from broker.wire.long_work import LongWork
from broker.wire.method_frames import method_frame
from broker.wire.settling import REQUEUE, settled

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

# Libraries that give basic.qos (not global) the meaning of AMQP 0-9-1, where it changes what runs,
# unless the broker calls itself RabbitMQ. kombu does so over py-amqp, and Celery with it.
QOS_FOR_RUNNING = frozenset({"py-amqp"})


def basic_qos(
    connection: Connection, channel: Channel, prefetch_size: int, prefetch_count: int, global_: bool
) -> None:
    if prefetch_size:
        raise NotImplementedYet(f"prefetch_size!=0 ({prefetch_size})")
    channel.deliveries.deliver_pending()
    if global_:
        channel.deliveries.set_global_prefetch(prefetch_count)
    else:
        channel.deliveries.prefetch_count = prefetch_count
        if connection.client_properties.get("product") in QOS_FOR_RUNNING:
            _limit_running(connection, channel, prefetch_count)
    channel.replies.send(method_frame(channel.number, "basic.qos-ok"))


def _limit_running(connection: Connection, channel: Channel, prefetch_count: int) -> None:
    """basic.qos in its first meaning: for the consumers that are there, too."""
    running = list(channel.deliveries.consumers.values())
    limits = [(each, each.prefetch_count) for each in running]
    channel.deliveries.qos_undo = connection.recv_cnt, limits
    for consumer in running:
        consumer.limit(prefetch_count)


def _undo_limits(connection: Connection, channel: Channel) -> None:
    """A consume came. Where it is the very next frame after a basic.qos, this was meant for the new
    consumer alone, as RabbitMQ has it: those that ran before have their former limits again."""
    if channel.deliveries.qos_undo is not None:
        frame, limits = channel.deliveries.qos_undo
        channel.deliveries.qos_undo = None
        if connection.recv_cnt == frame + 1:
            for consumer, prefetch_count in limits:
                consumer.limit(prefetch_count)


def basic_consume(
    connection: Connection,
    channel: Channel,
    queue: str,
    consumer_tag: str,
    no_local: bool,
    no_ack: bool,
    exclusive: bool,
    no_wait: bool,
    arguments: dict[str, Any],
) -> None:
    name = queue_name(connection, channel, queue)
    added = added_queues.of_name(name)
    if added is None:
        connection.check("read", "queue", name)
        found = connection.vhost.queue(name, connection)
    if not consumer_tag:
        consumer_tag = f"amq.ctag-{base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
    elif consumer_tag in channel.deliveries.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{consumer_tag}'")
    most = connection.host.config.consumers_per_channel_max
    if len(channel.deliveries.consumers) >= most:
        raise NotAllowed(f"reached maximum ({most}) of consumers per channel")
    _check_room(connection)
    if arguments:
        resource = describe("queue", name, connection.vhost.name)
        argument_table.check("consumer", arguments, resource)
        _check_memory(connection, arguments)
    if added is not None:
        found = added.open_queue(connection, channel, no_ack)
    elif found.exclusive_consumer_tag is not None or (
        exclusive and (found.consumer_count or is_single_active(found))
    ):
        raise AccessRefused(f"{describe('queue', name, connection.vhost.name)} in exclusive use")
    else:
        _check_queue_room(connection, found)
        found = found.consumed_by(channel, consumer_tag, no_ack, exclusive, arguments)
    consumer = Consumer(
        found,
        channel,
        consumer_tag,
        no_ack,
        exclusive,
        channel.deliveries.prefetch_count,
        arguments.get("x-priority", 0),
        arguments or None,
    )
    _undo_limits(connection, channel)
    connection.enter_consumer(channel, consumer)

    def start() -> None:
        if consumer.active and not consumer.queue.deleted:
            consumer.queue.add_consumer(consumer)

    if no_wait:
        start()
    else:
        # Deliveries must not overtake consume-ok, which may wait for the disk.
        consumer.queue.expect_consumer(consumer)
        channel.replies.send(
            method_frame(channel.number, "basic.consume-ok", consumer_tag=consumer_tag), start
        )


def _check_room(connection: Connection) -> None:
    """Raises NotAllowed where the connection's channels have as many consumers as may be."""
    most = connection.host.config.consumers_per_connection_max
    if connection.consumers_begun >= most:
        # Some of them may have been cancelled.
        channels = connection.channels.values()
        connection.consumers_begun = sum(len(each.deliveries.consumers) for each in channels)
        if connection.consumers_begun >= most:
            raise NotAllowed(f"reached maximum ({most}) of consumers per connection")
    connection.consumers_begun += 1


def _check_memory(connection: Connection, arguments: dict[str, Any]) -> None:
    """Raises PreconditionFailed where the arguments of the connection's consumers would take more
    memory than they may."""
    most = connection.host.config.consumer_arguments_max
    found = connection.consumer_arguments + argument_table.memory_of(arguments)
    if found > most:
        raise PreconditionFailed(
            f"the arguments of this connection's consumers would take {found} bytes of memory, and"
            f" at most {most} are allowed (consumer_arguments_max): cancel some, or use fewer"
            " values in x-stream-filter"
        )


def _check_queue_room(connection: Connection, queue: Any) -> None:
    """Raises PreconditionFailed where the queue has as many consumers as may be: whose turn it is
    takes a look at each of them when none has room."""
    most = connection.host.config.consumers_per_queue_max
    if queue.consumer_count >= most:
        raise PreconditionFailed(
            f"{describe('queue', queue.name, connection.vhost.name)} has {queue.consumer_count}"
            f" consumers, and no more than {most} are allowed (consumers_per_queue_max): cancel"
            " some, or have the setting raised"
        )


def is_single_active(queue: Any) -> bool:
    """Whether consumers wait for their turn to be the only one, which none may be for good."""
    return queue.limits is not None and bool(queue.limits.single_active)


def basic_cancel(
    connection: Connection, channel: Channel, consumer_tag: str, no_wait: bool
) -> None:
    consumer = channel.deliveries.consumers.get(consumer_tag)
    if consumer is not None:
        consumer.queue.deliver_pending()
        connection.leave_consumer(channel, consumer)
        consumer.queue.remove_consumer(consumer)
    answer(channel, no_wait, "basic.cancel-ok", consumer_tag=consumer_tag)


def basic_cancel_ok(connection: Connection, channel: Channel, consumer_tag: str) -> None:
    """The client's answer to our cancel: nothing to do."""


def basic_recover(connection: Connection, channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise NotImplementedYet("requeue=false")
    _recover(
        connection,
        channel,
        lambda: channel.replies.send(method_frame(channel.number, "basic.recover-ok")),
    )


def basic_recover_async(connection: Connection, channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise NotImplementedYet("requeue=false")
    _recover(connection, channel, lambda: None)


def _recover(connection: Connection, channel: Channel, then: Callable[[], object]) -> None:
    """Puts back what the client may know of, then calls `then()`."""

    def steps() -> Iterator[None]:
        newest = channel.deliveries.next_tag - 1
        channel.deliveries.deliver_pending()
        yield from settled(channel, newest, REQUEUE)
        if connection.is_open:
            then()

    LongWork(connection, steps()).begin()


def basic_get(connection: Connection, channel: Channel, queue: str, no_ack: bool) -> None:
    name = queue_name(connection, channel, queue)
    connection.check("read", "queue", name)
    found = connection.vhost.queue(name, connection)
    if is_single_active(found):
        raise ResourceLocked(
            f"cannot obtain access to locked {describe('queue', name, connection.vhost.name)}: "
            "basic.get operations are not supported by queues with single active consumer"
        )
    found.check_get()
    if channel.gets is None:
        channel.gets = Gets(channel)
    channel.gets.ask(found, no_ack)
