"""What the methods share: names as they are meant, answers, and who may ask."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker.schema.errors import AccessRefused, NotFound, describe
from broker.wire.commands import added_queues
from broker.wire.method_frames import method_frame

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

_NEWLINES = re.compile("[\r\n]")


def answer(channel: Channel, no_wait: bool, name: str, **arguments: Any) -> None:
    if not no_wait:
        channel.replies.send(method_frame(channel.number, name, **arguments))


def answer_when_over(
    connection: Connection, channel: Channel, since: int, no_wait: bool, name: str, **arguments: Any
) -> None:
    """Answers when what the vhost began to do after `since` is done, and on disk. What was asked
    for later on the channel is answered later."""
    if no_wait or connection.vhost.slices.is_over(since):
        answer(channel, no_wait, name, **arguments)
        return
    fill_when_over(connection, channel, since, channel.replies.reserve(), name, **arguments)


def fill_when_over(
    connection: Connection, channel: Channel, since: int, place: Any, name: str, **arguments: Any
) -> None:
    """The same at a place that `channel.replies.reserve` has kept."""
    data = method_frame(channel.number, name, **arguments)
    slices = connection.vhost.slices
    if slices.is_over(since):
        channel.replies.fill(place, data, None, True)
        return

    def fill() -> None:
        if connection.is_open:
            channel.replies.hold()
            channel.replies.fill(place, data, None, True)

    slices.over(fill, since)


def plain_name(name: str) -> str:
    """RabbitMQ strips line breaks from names, and so do we: they would break logs and lists."""
    return _NEWLINES.sub("", name) if "\n" in name or "\r" in name else name


def queue_name(connection: Connection, channel: Channel, name: str) -> str:
    """The queue a method means; an empty name is the one declared last on this channel. Raises
    NotFound."""
    if name:
        return plain_name(name)
    if channel.last_queue is None:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def check_any(connection: Connection, kind: str, name: str) -> None:
    """A passive declare needs any one of the three permissions, so that it does not leak what
    exists (CVE-2026-57221)."""
    access = connection.host.access
    asked = name or ("amq.default" if kind == "exchange" else "")
    if not any(
        access.allowed(connection.user, connection.vhost.name, each, asked)
        for each in ("configure", "write", "read")
    ):
        raise AccessRefused(
            f"access to {describe(kind, asked, connection.vhost.name)} refused "
            f"for user '{connection.user}'"
        )


def change_binding(
    connection: Connection,
    channel: Channel,
    source: str,
    destination: str,
    kind: str,
    routing_key: str,
    arguments: dict[str, Any],
    *,
    bind: bool,
) -> None:
    vhost = connection.vhost
    is_queue = kind == "queue"
    if is_queue and added_queues.of_name(destination) is not None:
        # CVE-2026-57215: bound, it would hand one client's replies to another.
        raise AccessRefused(
            f"{describe('queue', destination, vhost.name)} is no queue; it cannot be bound"
        )
    rights = connection.rights
    rights.check_binding(source, destination, kind)
    start = vhost.exchanges.get(source)
    rights.check_topics("read", start, (routing_key,))
    end = (vhost.queues if is_queue else vhost.exchanges).get(destination)
    if is_queue and end is not None:
        vhost.check_owner(end, connection)
    if bind:
        if vhost.bind(source, destination, kind, routing_key, arguments) and (
            start.durable and end.durable
        ):
            channel.replies.hold()
    elif vhost.unbind(source, destination, kind, routing_key, arguments):
        channel.replies.hold()
