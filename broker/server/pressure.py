"""Publishers wait while unwritten messages fill their memory, `tail_memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.wire.connection import Connection

if TYPE_CHECKING:
    from broker.server.app import Broker

FEW_PART = 4096
"""Of `tail_memory`: a publisher that sent no more while it is full is read on."""


class Pressure:
    """Which connections are not read, until the persister calls `relieved`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._persister = broker.persister
        self._paused: set[Connection] = set()
        self._few: dict[Connection, int] = {}

    def limit(self, connection: Connection, before: int) -> None:
        """After a chunk: `before` it unwritten messages had this number of bytes."""
        if self._persister.under_pressure:
            self.pause(connection, self._persister.tail_bytes - before)

    def pause(self, connection: Connection, grown: int) -> None:
        """The memory is full; the last chunk added `grown` bytes. This publisher is not read until
        the disk has caught up, unless its messages since then are few: the memory is full of those
        of others."""
        if not connection.publishes:
            # Logins, consumers and their acks continue: they are what frees the disk.
            return
        self._persister.pressed = True
        if not self._persister.reserve_is_taken:
            self._few[connection] = few = self._few.get(connection, 0) + max(grown, 0)
            if few <= self._persister.tail_limit // FEW_PART:
                return
        if connection not in self._paused and not connection.transport.is_closing():
            self._paused.add(connection)
            connection.paused = True
            connection.transport.pause_reading()
            if self._broker.alarms:
                connection.alarm_set()

    def relieved(self) -> None:
        """The disk has caught up."""
        self._few.clear()
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.paused = False
            connection.read_on()

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self._paused.discard(connection)
        self._few.pop(connection, None)
