"""What a channel knows of its unacknowledged deliveries, and what it costs to settle them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp.wired import Wired


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    wired = Wired(tmp_path)
    yield wired
    wired.stop()


def test_many_deliveries_acked_at_once_let_the_other_queues_go_on_once(wired: Wired) -> None:
    wired.channel.global_prefetch_count = 500
    queue, other = wired.queue(), wired.queue()
    wired.consume(other, "waiting", prefetch_count=1)
    wired.consume(queue, "busy")
    for _ in range(499):
        queue.put(b"", b"", b"\0\0", b"", persistent=False)
    assert len(wired.run()) == 499
    for _ in range(2):
        other.put(b"", b"", b"\0\0", b"", persistent=False)
    assert [each.delivery_tag for each in wired.run()] == [500]
    with wired.turns_at_once() as turns:
        wired.send("basic.ack", delivery_tag=499, multiple=True)
    # Not once for each delivery that was settled.
    assert len(turns) == 1
    assert wired.channel.messages_unacknowledged == 1
