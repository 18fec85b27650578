"""tx.commit: carried out in slices if it is long, and whole, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.schema.errors import AMQPError, PreconditionFailed
from broker.wire.long_work import LongWork
from broker.wire.method_frames import method_frame
from broker.wire.settling import REQUEUE, HeldBack, holding_back
from broker.wire.transaction import Taken

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

WEIGHED = 16
"""Messages or acks that count as much as one method off the hot path."""


class Commit:
    """One commit, which is long work of its connection (`long_work.py`).

    What would fail fails before the first message goes. After that all of it is carried out, also
    if the client has gone meanwhile. A message that cannot be published any more, because its
    exchange went or a queue refused it, leaves the deliveries unsettled: what it was made of comes
    again.
    """

    def __init__(self, connection: Connection, channel: Channel, taken: Taken) -> None:
        self._connection = connection
        self._channel = channel
        self._taken = taken

    def begin(self) -> None:
        """The first slice; a short commit is over then. Raises AMQPError."""
        connection, taken = self._connection, self._taken
        connection.count_work((len(taken.publishes) + len(taken.settles)) // WEIGHED)
        LongWork(connection, self._steps()).begin()

    def _steps(self) -> Iterator[None]:
        connection, channel = self._connection, self._channel
        failure: Exception | None = None
        try:
            yield from self._carry_out()
        except Exception as error:
            failure = error
        yield from self._taken.emptied()
        if failure is not None:
            raise failure
        if connection.is_open and not channel.closing:
            channel.replies.hold(records=True)
            channel.replies.send(method_frame(channel.number, "tx.commit-ok"))

    def _carry_out(self) -> Iterator[None]:
        channel, taken = self._channel, self._taken
        if taken.version != self._connection.host.topology.version:
            # They were checked when they came; an exchange or a permission may be gone.
            checked: set[tuple[bytes, ...]] = set()
            for message in taken.publishes:
                if message[:3] not in checked:
                    channel.check_target(*message[:3])
                    checked.add(message[:3])
                yield
        refused = ""
        publishes = taken.publishes
        publishes.reverse()
        while publishes:
            try:
                is_refused = channel.publish_committed(*publishes.pop())
                if channel.is_put_off:
                    is_refused = yield from channel.fanned_out()
                if is_refused:
                    refused = "a queue refused a message"
            except AMQPError as error:
                refused = error.text
            yield
        if refused:
            raise PreconditionFailed(f"partial tx completion: {refused}, and nothing was settled")
        held = HeldBack()
        try:
            yield from self._settle(held)
        finally:
            held.let_go()

    def _settle(self, held: HeldBack) -> Iterator[None]:
        """Queues that get messages back are `held` back until the caller lets them go."""
        channel, settles = self._channel, self._taken.settles
        settles.reverse()
        is_held = False
        while settles:
            tag, multiple, how = settles.pop()
            if how == REQUEUE and not is_held:
                is_held = True
                yield from holding_back(channel, held)
            while channel.settle_committed(tag, multiple, how):
                yield
            yield
