"""Methods of class channel, and access.request of older clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.schema.errors import NotImplementedYet
from broker.wire.methods import method_frame

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.session import Session


def channel_open(session: Session, number: int) -> None:
    session.open_channel(number)
    session.send(method_frame(number, "channel.open-ok"))


def channel_close(session: Session, channel: Channel, **_: Any) -> None:
    def answer() -> None:
        channel.replies.send(
            method_frame(channel.number, "channel.close-ok"), lambda: _forget(session, channel)
        )

    if channel.closing:
        answer()
        return
    # What came before it is delivered before it.
    channel.deliveries.deliver_pending()
    channel.begin_closing()
    session.end_channel(channel, answer)


def channel_close_ok(session: Session, channel: Channel) -> None:
    if channel.closing:
        session.drop_channel(channel)


def _forget(session: Session, channel: Channel) -> None:
    if session.find_channel(channel.number) is channel:
        session.drop_channel(channel)


def channel_flow(session: Session, channel: Channel, active: bool) -> None:
    if not active:
        raise NotImplementedYet("active=false")
    channel.replies.send(method_frame(channel.number, "channel.flow-ok", active=True))


def access_request(session: Session, channel: Channel, **_: Any) -> None:
    channel.replies.send(method_frame(channel.number, "access.request-ok", ticket=1))
