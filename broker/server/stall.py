"""Reports that the disk does not answer: a round of writes and syncs takes too long, or reads fail.

Nothing can be done about it here. Confirms wait, as they have to; heartbeats, and consumers of what
is in memory, continue, since the loop never waits for the disk. Publishers continue until unwritten
messages fill their memory. The loop checks it: a thread that uses the disk could hang, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.alarms")

NAME = "stalled disk"
FAILING_NAME = "failing disk"


class Stall:
    """`seconds`: for how long the disk has not answered, 0 while it does."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.seconds = 0.0
        self.longest_s = 0.0
        """Since the start."""

    def look(self) -> None:
        """Called some times a second."""
        persister = self._broker.persister
        # A full disk answers at once, that it is full.
        waited = 0.0 if persister.writer.full else persister.waits_for_disk
        self.judge(waited)

    def judge(self, waited: float) -> None:
        """Says so if the round in flight has taken `waited` seconds, or takes it back."""
        if waited < self._broker.config.disk_stall_after:
            if self.seconds:
                log.warning("the disk answers again after %.1f s", self.seconds)
                self._broker.emit("alarm.cleared", {"name": NAME, "text": "the disk answers again"})
                self.seconds = 0.0
            return
        began = not self.seconds
        self.seconds = waited
        self.longest_s = max(self.longest_s, waited)
        if began:
            log.warning("%s: %s", NAME, self.text)
            self._broker.emit("alarm.set", {"name": NAME, "text": self.text})

    @property
    def text(self) -> str:
        """What is wrong, what that stops, and what to do."""
        return (
            f"a sync has waited {self.seconds:.1f} s for the disk. Nothing is confirmed meanwhile; "
            "consuming of what is in memory continues. Look at the machine's disk: confirms "
            "continue by themselves when it answers."
        )

    def rows(self) -> list[dict[str, str]]:
        """As the rows of alarms."""
        rows = [{"name": NAME, "text": self.text}] if self.seconds else []
        reads = self._broker.persister.failed_reads
        if reads.last_error:
            text = (
                f"{reads.last_error}. Nothing is dropped: its queue waits, and it is tried again "
                f"every {reads.retry_after:g} s. Look at the machine's disk; {reads.count:,} reads "
                "failed since the start."
            )
            rows.append({"name": FAILING_NAME, "text": text})
        return rows
