"""What a channel in tx mode puts aside until its commit: messages, and acks of deliveries."""

from __future__ import annotations

from broker.errors import PreconditionFailed

Publish = tuple[bytes, bytes, bytes, bytes, int, bool]
"""Exchange, routing key, properties, body, flags, mandatory."""


class Transaction:
    """At most `limit` bytes of messages: bodies, properties and names."""

    __slots__ = ("limit", "publishes", "settles", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.publishes: list[Publish] = []
        self.settles: list[tuple[int, bool, int]] = []
        self.size = 0

    def publish(self, message: Publish) -> None:
        """Raises PreconditionFailed above the limit; nothing of the transaction is published
        then."""
        size = sum(len(part) for part in message[:4])
        if self.size + size > self.limit:
            raise PreconditionFailed(
                f"the transaction's messages are larger than {self.limit} bytes together "
                "(max_uncommitted_bytes): commit more often"
            )
        self.size += size
        self.publishes.append(message)

    def settle(self, tag: int, multiple: bool, how: int, is_open: bool) -> None:
        """An ack or its like; `is_open`: the delivery is unacknowledged. Each may be given once.
        Raises PreconditionFailed."""
        if not is_open or (
            not (multiple and tag == 0)
            and any(
                each == tag or (many and (each == 0 or each >= tag))
                for each, many, _ in self.settles
            )
        ):
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        self.settles.append((tag, multiple, how))

    def take(self) -> tuple[list[Publish], list[tuple[int, bool, int]]]:
        """What a commit carries out; the next transaction begins."""
        taken = self.publishes, self.settles
        self.clear()
        return taken

    def clear(self) -> None:
        """A rollback, or the channel's end."""
        self.publishes, self.settles, self.size = [], [], 0
