"""Queues without publishes, deliveries, consumers and confirms that wait share these parts: what
one of them begins to count is not counted by another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.queues.classic import ClassicQueue
from tests.amqp.wired import Wired


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    wired = Wired(tmp_path)
    yield wired
    wired.stop()


class Getter:
    """A basic.get."""

    no_ack = True
    found_nothing_in: ClassicQueue | None = None

    def empty(self, queue: ClassicQueue) -> None:
        self.found_nothing_in = queue


def test_a_publish_is_counted_by_its_own_queue_alone(wired: Wired) -> None:
    busy, idle = wired.queue(), wired.queue()
    wired.publish(busy.name, b"body")
    wired.run()
    assert (busy.counts.published, busy.counts.bytes_in) == (1, 4)
    assert (idle.counts.published, idle.counts.bytes_in) == (0, 0)


def test_a_publish_is_counted_by_its_own_queue_alone_where_a_transfer_asked_for_room_before(
    wired: Wired,
) -> None:
    """It opens the store of a queue that refuses what is over its limit."""
    limited, idle = wired.queue(max_length=5, overflow="reject-publish"), wired.queue()
    limited.open_store()
    wired.publish(limited.name, b"body")
    wired.run()
    assert (limited.counts.published, idle.counts.published) == (1, 0)


def test_a_consumer_is_one_of_its_own_queue_alone(wired: Wired) -> None:
    busy, idle = wired.queue(), wired.queue()
    wired.consume(busy, "c")
    assert (len(busy.consumers), len(idle.consumers)) == (1, 0)


def test_a_single_active_consumer_is_that_of_its_own_queue_alone(wired: Wired) -> None:
    single, shared = wired.queue(single_active_consumer=True), wired.queue()
    for queue in (single, shared):
        wired.consume(queue, f"1 {queue.name}")
        wired.consume(queue, f"2 {queue.name}")
        for _ in range(4):
            wired.publish(queue.name, b"body")
        wired.run()
    counts = {
        queue.name: sorted(consumer.unacked for consumer in queue.consumers)
        for queue in (single, shared)
    }
    assert counts == {single.name: [0, 4], shared.name: [2, 2]}


def test_a_delivery_is_counted_by_its_own_queue_alone(wired: Wired) -> None:
    busy, idle = wired.queue(), wired.queue()
    wired.consume(busy, "c")
    wired.publish(busy.name, b"body")
    wired.run()
    assert (busy.deliveries.delivered, busy.deliveries.bytes_out) == (1, 4)
    assert (idle.deliveries.delivered, idle.deliveries.bytes_out) == (0, 0)


def test_a_get_that_found_nothing_is_counted_by_its_own_queue_alone(wired: Wired) -> None:
    asked, idle = wired.queue(), wired.queue()
    getter = Getter()
    asked.get(getter)
    wired.run()
    assert getter.found_nothing_in is asked
    assert (asked.deliveries.got_empty, idle.deliveries.got_empty) == (1, 0)


@pytest.mark.parametrize("is_there_first", [True, False])
def test_a_delivery_in_lean_mode_is_unacknowledged_in_its_own_queue_alone(
    wired: Wired, is_there_first: bool
) -> None:
    """Also of a message that had to wait for the consumer: it was stored."""
    busy, idle = wired.queue(confirm_on="ack-lean"), wired.queue(confirm_on="ack-lean")
    if is_there_first:
        wired.consume(busy, "c")
    wired.publish(busy.name, b"body")
    if not is_there_first:
        wired.consume(busy, "c")
    wired.run()
    assert (busy.messages_unacknowledged, idle.messages_unacknowledged) == (1, 0)


def test_what_a_queue_begins_to_count_is_part_of_its_memory(wired: Wired) -> None:
    queue = wired.queue()
    empty = queue.memory
    wired.consume(queue, "c")
    assert queue.memory > empty
