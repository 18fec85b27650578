"""What a channel in tx mode puts aside until its commit: messages, and acks of deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from broker.kernel.large_body import LargeBody
from broker.schema.errors import PreconditionFailed

Publish = tuple[bytes, bytes, bytes, bytes | LargeBody, int, bool]
"""Exchange, routing key, properties, body, flags, mandatory."""
Settle = tuple[int, bool, int]
"""Delivery tag, multiple, how."""

MESSAGE_BYTES = 256
SETTLE_BYTES = 192
"""What the objects of a message, beside its parts, and those of an ack take."""
EMPTIED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one transaction, and `user_bytes` of all transactions of a user together."""

    messages: int
    bytes: int
    user_bytes: int


class Uncommitted:
    """Bytes that the transactions of each user hold."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def of(self, user: str) -> int:
        return self._held.get(user, 0)

    def add(self, user: str, size: int) -> None:
        """`size` is negative for what is held no longer."""
        held = self._held.get(user, 0) + size
        if held:
            self._held[user] = held
        else:
            self._held.pop(user, None)


class Transaction:
    """Messages and acks up to the limits of their number and bytes: bodies, properties and names,
    acks, and what holds them. `version` is the topology's when the first message was checked."""

    __slots__ = (
        "_limits",
        "_settled",
        "_settled_up_to",
        "_uncommitted",
        "_user",
        "publishes",
        "settles",
        "size",
        "version",
    )

    def __init__(self, limits: Limits, user: str, uncommitted: Uncommitted) -> None:
        self._limits = limits
        self._user = user
        self._uncommitted = uncommitted
        self.publishes: list[Publish] = []
        self.settles: list[Settle] = []
        self.size = 0
        self.version = 0
        self._settled: set[int] = set()
        self._settled_up_to = 0

    def publish(self, message: Publish, version: int) -> None:
        """A message that may be published by this version of the topology. Raises
        PreconditionFailed above the limits; nothing of the transaction is published then."""
        size = MESSAGE_BYTES + sum(len(part) for part in message[:4])
        self._grow(size)
        if not self.publishes:
            self.version = version
        self.publishes.append(message)

    def _grow(self, size: int) -> None:
        limits = self._limits
        if len(self.publishes) + len(self.settles) >= limits.messages:
            raise PreconditionFailed(
                f"the transaction holds {limits.messages} messages and acks already "
                "(max_uncommitted_messages): commit more often"
            )
        if self.size + size > limits.bytes:
            raise PreconditionFailed(
                f"the transaction's messages and acks take more than {limits.bytes} bytes together "
                "(max_uncommitted_bytes): commit more often"
            )
        if self._uncommitted.of(self._user) + size > limits.user_bytes:
            raise PreconditionFailed(
                f"all transactions of user '{self._user}' take more than {limits.user_bytes} bytes "
                "together (max_uncommitted_user_bytes): commit more often, or on fewer channels"
            )
        self.size += size
        self._uncommitted.add(self._user, size)

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

    def take(self) -> Taken:
        """What a commit carries out, or a rollback or the channel's end throws away; the next
        transaction begins."""
        taken = Taken(self.publishes, self.settles, self._settled, self.version)
        taken.give_back = (self._uncommitted, self._user, self.size)
        self.publishes, self.settles, self.size = [], [], 0
        self._settled, self._settled_up_to = set(), 0
        return taken


class Taken:
    """What a transaction held when it ended, in order. Emptying it gives the memory back."""

    __slots__ = ("_settled", "give_back", "publishes", "settles", "version")

    def __init__(
        self, publishes: list[Publish], settles: list[Settle], settled: set[int], version: int
    ) -> None:
        self.publishes = publishes
        self.settles = settles
        self._settled = settled
        self.version = version
        self.give_back: tuple[Uncommitted, str, int] | None = None

    def emptied(self) -> Iterator[None]:
        """Frees what is left, a part at a step: a hundred thousand objects take 20 ms."""
        parts: list[Any] = [self.publishes, self.settles]
        for part in parts:
            while part:
                del part[-EMPTIED_AT_ONCE:]
                yield
        while self._settled:
            for _ in range(min(EMPTIED_AT_ONCE, len(self._settled))):
                self._settled.pop()
            yield
        if self.give_back is not None:
            uncommitted, user, size = self.give_back
            self.give_back = None
            uncommitted.add(user, -size)
