"""Whether the broker serves clients, as an operator wants it: listeners suspended, the node drained
for maintenance, or the application stopped. None of it outlives the process.

The control socket, the pages and the metrics answer all the while.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from broker.server.listeners import CannotListen, Listeners
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.broker")

GONE_WITHIN_S = 3.0
"""How long clients have for their close-ok before their sockets are closed."""

DRAINED = "the node is being drained for maintenance"
STOPPED = "the application is stopped"


class NotNow(Exception):
    """What was asked for cannot be done as things are; the text says why and what to do."""


class Service:
    """What operators have switched off. One change at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.listeners = Listeners(broker)
        self._one = asyncio.Lock()
        self.drained = False
        self.stopped = False

    @property
    def suspended(self) -> bool:
        """Whether clients cannot connect."""
        return self.listeners.suspended

    @property
    def refusal(self) -> str:
        """Why no client is let in; empty if one is."""
        if self._broker.stopping:
            return "the broker is stopping"
        if self.stopped:
            return STOPPED
        # `resume_listeners` lets clients in while the node counts as drained.
        return DRAINED if self.drained and self.suspended else ""

    @property
    def state(self) -> str:
        """One word for it; empty if nothing is switched off."""
        if self.stopped:
            return "stopped"
        if self.drained:
            return "maintenance"
        return "suspended" if self.suspended else ""

    @property
    def text(self) -> str:
        """What is switched off, what that means, and how it ends; empty if nothing is."""
        if self.stopped:
            return f"{STOPPED}: no client can connect. 'ctl start_app' lets clients connect again"
        if self.drained:
            clients = "no client can connect" if self.suspended else "clients can connect"
            return f"{DRAINED}: {clients}. 'ctl revive' ends that"
        if self.suspended:
            return (
                "the listeners are suspended: no further client can connect. "
                "'ctl resume_listeners' lets clients connect again"
            )
        return ""

    async def suspend(self) -> bool:
        """No further client can connect; returns whether any could."""
        async with self._one:
            return self._suspend()

    async def resume(self) -> bool:
        """Clients can connect again; returns whether they could not. Raises NotNow."""
        async with self._one:
            if self.stopped:
                raise NotNow(f"{STOPPED}; start_app resumes the listeners")
            return await self._resume()

    async def drain(self) -> int:
        """Closes every client's connection, and no other can connect; returns how many."""
        async with self._one:
            if not self.drained:
                log.warning("maintenance begins: the node is drained")
            self.drained = True
            self._suspend()
            return await self._close_connections("maintenance")

    async def revive(self) -> bool:
        """Ends the maintenance; returns whether there was one. Raises NotNow."""
        async with self._one:
            if self.stopped:
                raise NotNow(f"{STOPPED}; start_app ends the maintenance, too")
            await self._resume()
            was, self.drained = self.drained, False
            if was:
                log.warning("maintenance is over: the node serves clients again")
            return was

    async def stop(self) -> int:
        """As `drain`, and the node counts as not running."""
        async with self._one:
            if not self.stopped:
                log.warning("the application is stopped: no client is served")
            self.stopped = True
            self._suspend()
            return await self._close_connections("shutdown")

    async def start(self) -> bool:
        """Ends all of it, as a new start of the broker does; returns whether the application was
        stopped. Raises NotNow."""
        async with self._one:
            await self._resume()
            was, self.stopped, self.drained = self.stopped, False, False
            if was:
                log.warning("the application is started: clients are served again")
            return was

    def _suspend(self) -> bool:
        if self.suspended:
            return False
        self.listeners.suspend()
        log.warning("the listeners for clients are suspended")
        return True

    async def _resume(self) -> bool:
        if not self.suspended:
            return False
        if self._broker.stopping:
            raise NotNow("the broker is stopping")
        try:
            await self.listeners.resume()
        except CannotListen as error:
            raise NotNow(f"{error}; the listeners stay suspended") from None
        log.warning("the listeners for clients are resumed")
        return True

    async def _close_connections(self, reason: str) -> int:
        connections, pace = self._broker.connections, Pace()
        closed = list(connections.values())
        for session in closed:
            if session.id in connections:
                session.close(320, f"broker forced connection closure with reason '{reason}'")
            await pace()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_WITHIN_S):
                while any(session.id in connections for session in closed):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        for session in closed:
            if session.id in connections:
                session.drop()
            await pace()
        return len(closed)
