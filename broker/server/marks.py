"""Whether marks of deliveries may be lost, from before the recovery to the clean stop."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from broker.store.directory import last_mount

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.broker")


class Marks:
    """See `broker.store.directory.last_mount`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._directory = str(broker.config.data_dir)

    def ask(self, disk_failed: bool) -> None:
        """Before recovery. `disk_failed`: the last run ended so. Raises OSError."""
        doubtful = disk_failed or not last_mount.has_all(self._directory)
        self._broker.persister.doubts_marks = doubtful

    def recovered(self) -> None:
        """Raises OSError."""
        if not self._broker.persister.doubts_marks:
            last_mount.note_start(self._directory)

    def started(self) -> None:
        """The threads run."""
        if self._broker.persister.doubts_marks:
            self._broker.run_task(self._settle())

    async def _settle(self) -> None:
        """What recovery took for delivered is written."""
        broker = self._broker
        log.warning(
            "what the last run wrote without a sync may be lost: messages come as redelivered"
        )
        await broker.synced()
        broker.persister.doubts_marks = False
        try:
            await broker.loop.run_in_executor(None, last_mount.note_start, self._directory)
        except OSError as error:
            log.error("messages will come as redelivered after the next kill, too: %s", error)

    def stopped(self) -> None:
        """Everything is written and synced, or the disk failed."""
        if not self._broker.persister.broken:
            with contextlib.suppress(OSError):
                last_mount.note_stop(self._directory)
