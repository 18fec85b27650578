"""Direct reply-to on the wire: consuming from the pseudo-queue, and finding a reply's consumer."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

from broker.schema.errors import PreconditionFailed
from broker.wire.reply_queue import PSEUDO_NAME, ReplyQueue, dropped_replies

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

NAMES = (PSEUDO_NAME, "amq.direct.reply-to")


def is_reply(name: str) -> bool:
    """Whether a routing key could be a reply's."""
    return name.startswith(PSEUDO_NAME + ".")


def open_queue(connection: Connection, channel: Channel, no_ack: bool) -> ReplyQueue:
    """The channel's reply queue. Raises PreconditionFailed where RabbitMQ does."""
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_name is not None:
        raise PreconditionFailed("reply consumer already set")
    host = connection.host
    token = base64.urlsafe_b64encode(os.urandom(18)).decode()

    def close(queue: ReplyQueue) -> None:
        del host.reply_queues[queue.name]
        channel.reply_name = None
        host.topology.changed()

    queue = ReplyQueue(f"{PSEUDO_NAME}.{token}", host.topology.changed, close)
    host.reply_queues[queue.name] = queue
    host.topology.changed()
    channel.reply_name = queue.name
    return queue


def targets(host: Any, vhost: Any, routing_key: str) -> tuple[ReplyQueue, ...]:
    """Who gets a message published to the default exchange with this key: the requester, if it is
    there and in the same vhost."""
    queue = host.reply_queues.get(routing_key)
    if queue is None or queue.consumer is None:
        return ()
    return (queue,) if queue.consumer.channel.connection.vhost is vhost else ()


def reply_name(channel: Channel | None) -> str:
    """What a publish's reply-to becomes. Raises PreconditionFailed without a reply consumer, or
    without a channel that could have one."""
    if channel is None or channel.reply_name is None:
        raise PreconditionFailed("fast reply consumer does not exist")
    return channel.reply_name


def limit_figures() -> list[tuple[str, int, bool, str]]:
    """As `added_queues.limit_figures` wants them."""
    text = "Direct replies dropped because their requester did not take them in time"
    return [("direct_replies_dropped", dropped_replies(), True, text)]
