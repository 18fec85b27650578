"""What a client asks that may take longer than a turn of the loop: a commit, acks of very many
deliveries, the end of channels that hold as many. It is done in slices.

Nothing else of its connection is taken apart until it is over, so that the order stays what the
client sent; other connections have their turns. It is carried out whole, also if the client leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from inspect import GEN_RUNNING, getgeneratorstate
from typing import TYPE_CHECKING

from broker.schema.errors import AMQPError, InternalFault

if TYPE_CHECKING:
    from broker.wire.connection import Connection

log = logging.getLogger("leveret.connection")


class LongWork:
    """One such work of a connection, as `steps`; they may raise AMQPError."""

    def __init__(self, connection: Connection, steps: Iterator[None]) -> None:
        self._connection = connection
        self._error: AMQPError | None = None
        self._is_split = False
        self._after: list[Callable[[], object]] = []
        self._run: Generator[None, None, None] = self._steps(steps)

    def begin(self) -> None:
        """The first slice; short work is over then. Raises its AMQPError in that case; a later one
        becomes the end of the channel or the connection."""
        connection = self._connection
        assert connection.long_work is None
        connection.long_work = self
        connection.vhost.slices.begin(self._run)
        if connection.long_work is self:
            self._is_split = True
            connection.await_work()
        elif self._error is not None:
            raise self._error

    def complete(self) -> None:
        """Carries out the rest at once: the broker stops. From inside a step it does nothing: that
        step, and those behind it, are on their way."""
        if getgeneratorstate(self._run) != GEN_RUNNING:
            for _ in self._run:
                pass

    def then(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` when it is over, before anything else of the connection is taken
        apart."""
        self._after.append(callback)

    def _steps(self, steps: Iterator[None]) -> Generator[None, None, None]:
        try:
            yield from steps
        except AMQPError as error:
            self._error = error
        except Exception:
            log.exception("connection %s: internal error in long work", self._connection.label())
            self._error = InternalFault("internal error; the broker's log has the details")
        self._over()

    def _over(self) -> None:
        connection = self._connection
        connection.long_work = None
        if self._error is not None and self._is_split:
            # Does nothing where the connection is closed meanwhile.
            connection.fail(self._error)
        for callback in self._after:
            # One of them may have begun more: the others wait for that, too.
            if not connection.after_work(callback):
                callback()
        if self._is_split and not connection.after_work(connection.work_over):
            connection.work_over()
