"""Permissions that are taken away act on open connections at once.

Publishing and every method check the permission again by themselves, since each change raises the
topology's version. The rest is done here: consumers of a queue that the user may no longer read are
cancelled, connections to a vhost that the user may no longer enter are closed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker.schema.errors import AccessRefused, NotAllowed
from broker.server.pace import Pace
from broker.wire.commands import added_queues

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

log = logging.getLogger("leveret.connection")


BASIC_CONSUME = (60, 20)
"""Class and method that the closing of a channel names."""


class Revocation:
    """Looks at the connections of users whose rights have changed, a few at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._users: dict[str, None] = {}

    def changed(self, event: str, user: str) -> None:
        """A user or a permission has changed."""
        if not self._users:
            self._broker.run_task(self._run())
        self._users[user] = None
        log.debug("%s: the connections of user '%s' are looked at", event, user)

    async def _run(self) -> None:
        pace = Pace()
        while self._users:
            user = next(iter(self._users))
            connections = [
                connection
                for connection in self._broker.connections.values()
                if connection.user == user
            ]
            # From here on a change counts for those again that were looked at before it.
            del self._users[user]
            for connection in connections:
                await pace()
                if not connection.is_open:
                    continue
                try:
                    await self._look_at(connection, pace)
                except Exception:
                    # The others have to be looked at all the same.
                    log.exception("connection %s cannot be looked at", connection.name)

    async def _look_at(self, connection: Connection, pace: Pace) -> None:
        access, user, vhost = self._broker.access, connection.user, connection.vhost.name
        if user not in access.users:
            connection.close(320, f"user '{user}' is deleted")
            return
        if not access.vhost_access(user, vhost):
            error = NotAllowed(f"access to vhost '{vhost}' refused for user '{user}'")
            connection.close_reason = error.text
            connection.close_with(error.reply_code, error.reply_text(), 0, 0)
            return
        for channel in list(connection.channels.values()):
            consumer: Any
            for consumer in list(channel.deliveries.consumers.values()):
                await pace()
                if channel.closing or not connection.is_open:
                    break
                if consumer.tag not in channel.deliveries.consumers:
                    continue
                if added_queues.of_key(consumer.queue.name) is not None:
                    # No vhost has such a queue, and consuming from it asked for no permission.
                    continue
                try:
                    access.check(user, vhost, "read", "queue", consumer.queue.name)
                except AccessRefused as error:
                    _revoke(connection, channel, consumer, error)


def _revoke(connection: Connection, channel: Channel, consumer: Any, error: AccessRefused) -> None:
    """The consumer is cancelled if the client understands that, else its channel is closed."""
    consumer.queue.remove_consumer(consumer)
    if connection.can("consumer_cancel_notify"):
        connection.cancel_consumer(consumer)
    else:
        connection.close_channel(channel, error, *BASIC_CONSUME)
