"""Very many deliveries settled in slices: acked, rejected, or given back to their queues."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.wire.channel import Channel

PURGED_AT_ONCE = 2_000
"""Messages that came back to a queue and are purged in one step, 0.1 microseconds each."""
ACK, REJECT, REQUEUE = range(3)
"""What settling means, as in `deliveries.pxd`."""


class HeldBack:
    """Queues that deliver nothing while messages come back to them in slices: what comes back is
    delivered in its old order, and before what came later."""

    def __init__(self) -> None:
        self._queues: dict[Any, None] = {}

    def add(self, queues: Iterable[Any]) -> None:
        for queue in queues:
            if queue not in self._queues:
                self._queues[queue] = None
                queue.hold_back(True)

    def let_go(self) -> None:
        """All messages are back: the queues deliver again."""
        queues, self._queues = self._queues, {}
        for queue in queues:
            queue.hold_back(False)


def settled(channel: Channel, last: int, how: int) -> Iterator[None]:
    """Settles what is unacknowledged up to the delivery tag `last`."""
    if how != REQUEUE:
        yield from _slices(channel, last, how)
        return
    held = HeldBack()
    try:
        yield from holding_back(channel, held)
        yield from given_back(channel, last)
    finally:
        held.let_go()


def holding_back(channel: Channel, held: HeldBack) -> Iterator[None]:
    """Holds the queues back to which messages may come from the channel, until the caller lets them
    go. What they have to deliver already comes before what comes back."""
    for consumer in channel.deliveries.holders():
        consumer.queue.deliver_pending()
        held.add([consumer.queue])
        yield


def given_back(channel: Channel, last: int) -> Iterator[None]:
    """Puts back what is unacknowledged up to the delivery tag `last`, but what a transaction
    settles. The caller holds the queues back."""
    yield from _slices(channel, last, REQUEUE)


def purged(queue: Any) -> Generator[None, None, int]:
    """Settles all ready messages of a queue; the unacked ones stay. Returns their number. Very many
    may have come back, each to a place of its own."""
    queue.deliver_pending()
    held = HeldBack()
    held.add([queue])
    count = 0
    try:
        while found := queue.purge_part(PURGED_AT_ONCE):
            count += found
            yield
        return count if queue.deleted else count + int(queue.purge())
    finally:
        held.let_go()


def _slices(channel: Channel, last: int, how: int) -> Iterator[None]:
    since = 1
    while since := channel.settle_slice(since, last, how):
        yield
