"""The basic.gets of a channel: answered in the order in which they were asked.

A get may have to wait: for the disk that its message is read from, or, without ack, until it is
written that the message is gone. Its reply keeps its place among the channel's replies, and its
delivery tag is given when it is sent: a client that acks everything up to a later delivery
means none of the messages it has not seen. Other channels are not held up.

A message that was taken and not told when the channel ends goes back to its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.kernel.contracts import Consumer
from broker.kernel.large_body import LargeBody
from broker.settings.bounds import TRACED_BODY_MAX
from broker.wire.argument_lists import frame
from broker.wire.method_frames import method_frame

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.held_replies import HeldReply

AHEAD_MAX = 128
"""The most gets of a channel that are under way; the queues get the others later."""

TOLD_LATER_BYTES = 4 << 20
"""While bodies of this length wait to be sent, no further message is taken for the channel."""

ASKED_IN_TURN = 32
"""Each takes about ten microseconds."""


class Get:
    """One basic.get, from its method to its reply."""

    __slots__ = (
        "_gets",
        "body",
        "is_answered",
        "listed",
        "no_ack",
        "place",
        "queue",
        "reply",
        "tail",
    )

    def __init__(self, gets: Gets, queue: Any, no_ack: bool) -> None:
        self._gets = gets
        self.queue = queue
        self.no_ack = no_ack
        self.reply: HeldReply | None = None
        self.place: tuple[int, ...] = ()
        self.listed = self.tail = b""
        self.body: bytes | LargeBody = b""
        self.is_answered = False

    @property
    def channel(self) -> Any:
        """The channel that asked."""
        return self._gets.channel

    def message(
        self,
        queue: Any,
        exchange: bytes,
        routing_key: bytes,
        listed: bytes,
        body: bytes | LargeBody,
        place: tuple[int, ...],
    ) -> None:
        """The queue gave a message; without ack it is settled."""
        channel = self._gets.channel
        if channel.traced:
            traced = body[:TRACED_BODY_MAX]
            channel.connection.trace_delivery(
                channel, exchange, routing_key, listed, traced, queue, bool(place[3])
            )
        self.place = place
        self.body = body
        self.listed = listed
        self.tail = (
            (b"\x01" if place[3] else b"\x00")
            + bytes([len(exchange)])
            + exchange
            + bytes([len(routing_key)])
            + routing_key
            + queue.messages_ready.to_bytes(4, "big")
        )
        self._gets.answered(self)

    def empty(self, queue: Any) -> None:
        """The queue is empty, or was deleted."""
        self._gets.answered(self)


class Gets:
    """What a channel's gets have come to."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._unasked: deque[Get] = deque()
        # At their queues, and answered with a message but not told.
        self._asked: dict[Get, None] = {}
        self._untold: dict[Get, None] = {}
        self._untold_bytes = 0
        self._is_asking = False
        self._is_scheduled = False

    @property
    def channel(self) -> Channel:
        return self._channel

    def ask(self, queue: Any, no_ack: bool) -> None:
        """A basic.get came."""
        get = Get(self, queue, no_ack)
        self._unasked.append(get)
        if len(self._unasked) == 1:
            self.go_on()
        if not get.is_answered:
            get.reply = self._channel.replies.reserve()

    def go_on(self) -> None:
        """Asks for as many messages as may be under way, some in a turn."""
        if self._is_asking:
            return
        self._is_asking = True
        try:
            for _ in range(ASKED_IN_TURN):
                if not self._unasked or not self._has_room():
                    return
                get = self._unasked.popleft()
                self._asked[get] = None
                if get.queue.deleted:
                    get.empty(get.queue)
                else:
                    get.queue.get(get)
        finally:
            self._is_asking = False
        if self._unasked and not self._is_scheduled:
            self._is_scheduled = True
            self._channel.next_turn(self._go_on_later)

    def _has_room(self) -> bool:
        return (
            len(self._asked) + len(self._untold) < AHEAD_MAX
            and self._untold_bytes < TOLD_LATER_BYTES
            and not self._channel.is_full
        )

    def _go_on_later(self) -> None:
        self._is_scheduled = False
        self.go_on()

    def answered(self, get: Get) -> None:
        """A queue answered: the reply goes out when its turn comes."""
        channel = self._channel
        del self._asked[get]
        get.is_answered = True
        if not get.place:
            channel.deliveries.count_empty()
            self._answer(get, method_frame(channel.number, "basic.get-empty"), None)
        else:
            if get.no_ack and get.queue.durable:
                channel.replies.await_ack()
            if get.reply is None and not channel.replies.are_held:
                self._send(get)
            else:
                self._untold[get] = None
                self._untold_bytes += len(get.body)
                self._answer(get, b"", lambda: self._tell(get))
        self.go_on()

    def _answer(self, get: Get, data: bytes, then: Callable[[], None] | None) -> None:
        if get.reply is None:
            self._channel.replies.send(data, then)
        else:
            self._channel.replies.fill(get.reply, data, then, get.no_ack)

    def _tell(self, get: Get) -> None:
        """All replies before it are sent."""
        if get in self._untold:
            del self._untold[get]
            self._untold_bytes -= len(get.body)
            self._send(get)
            self.go_on()

    def _send(self, get: Get) -> None:
        channel = self._channel
        consumer = Consumer(get.queue, channel, "", get.no_ack, active=False)
        tag = channel.take_got(consumer, get.place)
        payload = b"\x00\x3c\x00\x47" + tag.to_bytes(8, "big") + get.tail
        method = frame(1, channel.number, payload)
        if isinstance(get.body, LargeBody):
            header = content_header(channel, get.listed, len(get.body))
            channel.output.send_large(method + header, get.body, channel.number)
        else:
            channel.output.send(method + content(channel, get.listed, get.body))

    def end(self) -> None:
        """The channel ends: gets under way are dropped, and messages that need an ack are requeued.
        A message taken without ack is still sent if the connection can send."""
        for get in [get for get in self._untold if not get.no_ack]:
            del self._untold[get]
            get.queue.requeue_place(get.place)
            get.reply = None  # which refers to it
        open_gets = [*self._asked, *self._unasked]
        self._unasked.clear()
        for get in self._asked:
            get.queue.withdraw(get)
        self._asked.clear()
        for get in open_gets:
            if get.reply is not None:
                self._channel.replies.fill(get.reply, b"")


def content_header(channel: Channel, listed: bytes, length: int) -> bytes:
    return frame(2, channel.number, b"\x00\x3c\x00\x00" + length.to_bytes(8, "big") + listed)


def content(channel: Channel, listed: bytes, body: bytes) -> bytes:
    """Content header and body frames."""
    part = channel.output.frame_max - 8
    frames = [content_header(channel, listed, len(body))]
    frames += [frame(3, channel.number, body[at : at + part]) for at in range(0, len(body), part)]
    return b"".join(frames)
