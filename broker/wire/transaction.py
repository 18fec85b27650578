"""What a channel in tx mode puts aside until its commit: messages, and acks of deliveries."""

from __future__ import annotations

from broker.errors import PreconditionFailed

Publish = tuple[bytes, bytes, bytes, bytes, int, bool]
"""Exchange, routing key, properties, body, flags, mandatory."""


MESSAGE_BYTES = 256
SETTLE_BYTES = 192
"""What the objects of a message, beside its parts, and those of an ack take."""


class Transaction:
    """At most `limit` bytes: messages' bodies, properties and names, acks, and what holds them.
    `version` is the topology's when the first message was checked."""

    __slots__ = ("_settled", "_settled_up_to", "limit", "publishes", "settles", "size", "version")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.publishes: list[Publish] = []
        self.settles: list[tuple[int, bool, int]] = []
        self.size = 0
        self.version = 0
        self._settled: set[int] = set()
        self._settled_up_to = 0

    def publish(self, message: Publish, version: int) -> None:
        """A message that may be published by this version of the topology. Raises
        PreconditionFailed above the limit; nothing of the transaction is published then."""
        size = MESSAGE_BYTES + sum(len(part) for part in message[:4])
        self._grow(size)
        if not self.publishes:
            self.version = version
        self.publishes.append(message)

    def _grow(self, size: int) -> None:
        if self.size + size > self.limit:
            raise PreconditionFailed(
                f"the transaction's messages and acks take more than {self.limit} bytes together "
                "(max_uncommitted_bytes): commit more often"
            )
        self.size += size

    def settle(self, tag: int, multiple: bool, how: int) -> None:
        """An ack or its like of an open delivery, or of all up to it. Each may be given once.
        Raises PreconditionFailed."""
        if self.settles_tag(tag):
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if multiple:
            self.settle_all(tag, how)
        else:
            self._grow(SETTLE_BYTES)
            self._settled.add(tag)
            self.settles.append((tag, False, how))

    def settle_all(self, tag: int, how: int) -> None:
        """An ack or its like of whatever is open up to this delivery, the newest that there is."""
        if tag > self._settled_up_to:
            self._grow(SETTLE_BYTES)
            self._settled_up_to = tag
            self.settles.append((tag, True, how))

    def settles_tag(self, tag: int) -> bool:
        """Whether the delivery is put aside, so that nothing else may be done with it."""
        return tag <= self._settled_up_to or tag in self._settled

    def take(self) -> tuple[list[Publish], list[tuple[int, bool, int]]]:
        """What a commit carries out; the next transaction begins."""
        taken = self.publishes, self.settles
        self.clear()
        return taken

    def clear(self) -> None:
        """A rollback, or the channel's end."""
        self.publishes, self.settles, self.size = [], [], 0
        self._settled, self._settled_up_to = set(), 0
