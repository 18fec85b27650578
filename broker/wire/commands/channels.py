"""Methods of class channel, and access.request of older clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.schema.errors import NotImplementedYet
from broker.wire.method_frames import method_frame

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection


def channel_close(connection: Connection, channel: Channel, **_: Any) -> None:
    def answer() -> None:
        channel.replies.send(
            method_frame(channel.number, "channel.close-ok"), lambda: _forget(connection, channel)
        )

    if channel.closing:
        answer()
        return
    # What came before it is delivered before it.
    channel.deliveries.deliver_pending()
    channel.begin_closing()
    connection.end_channel(channel, answer)


def channel_close_ok(connection: Connection, channel: Channel) -> None:
    if channel.closing:
        connection.drop_channel(channel)


def _forget(connection: Connection, channel: Channel) -> None:
    if connection.find_channel(channel.number) is channel:
        connection.drop_channel(channel)


def channel_flow(connection: Connection, channel: Channel, active: bool) -> None:
    if not active:
        raise NotImplementedYet("active=false")
    channel.replies.send(method_frame(channel.number, "channel.flow-ok", active=True))


def access_request(connection: Connection, channel: Channel, **_: Any) -> None:
    channel.replies.send(method_frame(channel.number, "access.request-ok", ticket=1))
