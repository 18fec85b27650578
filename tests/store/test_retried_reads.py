"""A read that failed is tried again at once when a person asks for it."""

from broker.store.commit.failed_reads import FailedReads


class Reader:
    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def test_only_the_readers_that_are_named_are_woken() -> None:
    now = 0.0
    reads = FailedReads(60.0, lambda: now)
    asked, other, idle = Reader(), Reader(), Reader()
    for reader in (asked, other):
        reads.add("a segment", "Input/output error", reader.wake)
    assert reads.retry({id(asked), id(idle)}) == 1
    assert (asked.woken, other.woken, idle.woken) == (1, 0, 0)
    assert reads.waiting == 1
    assert reads.retry({id(asked)}) == 0
    now = 61.0
    reads.tick()
    assert (asked.woken, other.woken) == (1, 1)
