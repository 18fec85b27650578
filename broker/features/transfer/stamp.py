"""The headers that say that a message is a replay, and of what (docs/transfers.md)."""

from __future__ import annotations

from broker.features.transfer.records import Transfer
from broker.fields.headers import ListedProperties

PREFIX = "x-replay-"
ID = f"{PREFIX}id"
STREAM = f"{PREFIX}stream"
OFFSET = f"{PREFIX}offset"
TIMESTAMP = f"{PREFIX}timestamp"


class Stamp:
    """Marks the messages of one replay."""

    def __init__(self, transfer: Transfer) -> None:
        self._id = transfer.id
        self._stream = transfer.source

    def put(self, properties: ListedProperties, offset: int, timestamp: int) -> None:
        """`timestamp` is when the stream got the message, in ms since 1970. The headers of an
        earlier replay are replaced."""
        properties.set_header(ID, self._id)
        properties.set_header(STREAM, self._stream)
        properties.set_header(OFFSET, offset)
        properties.set_header(TIMESTAMP, timestamp)
