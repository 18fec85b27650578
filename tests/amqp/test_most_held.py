"""The most messages that a queue held between two looks, whatever took them out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp.wired import Wired


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    wired = Wired(tmp_path)
    yield wired
    wired.stop()


def test_it_is_what_was_held_before_a_purge(wired: Wired) -> None:
    queue = wired.queue()
    for _ in range(7):
        wired.publish(queue.name)
    queue.purge()
    assert queue.take_most() == 7
    wired.publish(queue.name)
    assert queue.take_most() == 1


def test_it_is_what_was_held_before_a_consumer_took_and_acked(wired: Wired) -> None:
    queue = wired.queue()
    for _ in range(5):
        wired.publish(queue.name)
    consumer = wired.consume(queue, "taker", no_ack=True)
    wired.sync()
    assert queue.messages_ready == 0
    assert queue.take_most() == 5
    assert queue.take_most() == 0
    assert consumer is not None
