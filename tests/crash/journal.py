"""What one client process knows, in order: fixed-size records in a file of its own.

A journal is flushed at every turn of its process; the broker never touches it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

RECORD = struct.Struct("<BBHIQ")


class Kind(IntEnum):
    """Kinds of records; the comment tells what `queue` and `flag` mean."""

    ATTEMPTED = 1  # queue: bit mask of the queues it is routed to
    CONFIRMED = 2
    NACKED = 3
    SESSION = 4  # a consumer starts on the queue
    DELIVERED = 5  # flag: 1 redelivered, 2 altered
    ACK_SENT = 6
    FENCED = 7  # all acks sent before in this journal have been processed
    STRANGER = 8  # a delivery whose message id is not of this run
    REQUEUED = 9  # given back to its queue


@dataclass(frozen=True)
class Record:
    """One line of a journal."""

    kind: Kind
    publisher: int = 0
    sequence: int = 0
    queue: int = 0
    flag: int = 0


class Journal:
    """Appends records to a file."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab")

    def add(
        self, kind: Kind, publisher: int = 0, sequence: int = 0, queue: int = 0, flag: int = 0
    ) -> None:
        """Appends one record; it is on its way to the file after the next `flush`."""
        self.file.write(RECORD.pack(kind, flag, publisher, queue, sequence))

    def flush(self) -> None:
        """Hands everything so far to the operating system."""
        self.file.flush()

    def close(self) -> None:
        """Flushes and closes."""
        self.file.close()


def read(path: Path) -> Iterator[Record]:
    """The records of a journal file, oldest first."""
    data = path.read_bytes()
    whole = len(data) - len(data) % RECORD.size
    for kind, flag, publisher, queue, sequence in RECORD.iter_unpack(data[:whole]):
        yield Record(Kind(kind), publisher, sequence, queue, flag)
