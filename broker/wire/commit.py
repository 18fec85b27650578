"""tx.commit while it is carried out: in slices if it is long, and whole, whatever happens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.errors import AMQPError, InternalFault, PreconditionFailed
from broker.wire.methods import method_frame
from broker.wire.transaction import Taken

if TYPE_CHECKING:
    from broker.wire.channel import WireChannel
    from broker.wire.session import Session

log = logging.getLogger("leveret.connection")

WEIGHED = 16
"""So many messages or acks weigh as much as a method that is not hot."""


class Commit:
    """One commit. Nothing else of its connection is taken apart until it is over.

    What would fail fails before the first message goes. After that all of it is carried out, also
    if the client has gone meanwhile. A message that cannot be published any more, because its
    exchange went or a queue refused it, leaves the deliveries unsettled: what it was made of comes
    again.
    """

    def __init__(self, session: Session, channel: WireChannel, taken: Taken) -> None:
        self.channel = channel
        self._session = session
        self._taken = taken
        self._error: AMQPError | None = None
        self._is_split = False
        self._after: Callable[[], None] | None = None
        self._work = self._steps()

    def begin(self) -> None:
        """The first slice; a short commit is over then. Raises AMQPError."""
        session = self._session
        session.count_work((len(self._taken.publishes) + len(self._taken.settles)) // WEIGHED)
        session.committing = self
        session.vhost.slices.begin(self._work)
        if session.committing is self:
            self._is_split = True
            session.await_commit()
        elif self._error is not None:
            raise self._error

    def complete(self) -> None:
        """Carries out the rest at once: the channel ends."""
        for _ in self._work:
            pass

    def then(self, callback: Callable[[], None]) -> None:
        """Calls `callback()` when it is over."""
        self._after = callback

    def _steps(self) -> Iterator[None]:
        try:
            yield from self._carry_out()
        except AMQPError as error:
            self._error = error
        except Exception:
            log.exception("connection %s: internal error in a commit", self._session.label())
            self._error = InternalFault("internal error; the broker's log has the details")
        yield from self._taken.emptied()
        self._over()

    def _carry_out(self) -> Iterator[None]:
        channel, taken = self.channel, self._taken
        if taken.version != self._session.host.topology.version:
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
                if channel.publish_committed(*publishes.pop()):
                    refused = "a queue refused a message"
            except AMQPError as error:
                refused = error.text
            yield
        if refused:
            raise PreconditionFailed(f"partial tx completion: {refused}, and nothing was settled")
        settles = taken.settles
        settles.reverse()
        while settles:
            tag, multiple, how = settles.pop()
            while channel.settle_committed(tag, multiple, how):
                yield
            yield

    def _over(self) -> None:
        session, channel = self._session, self.channel
        session.committing = None
        if self._error is None and session.is_open and not channel.closing:
            channel.hold(records=True)
            channel.reply(method_frame(channel.number, "tx.commit-ok"))
        if self._is_split:
            if self._error is not None:
                session.fail(self._error)
            session.committed()
        if self._after is not None:
            self._after()
