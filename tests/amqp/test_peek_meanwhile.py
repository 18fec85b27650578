"""Looking into a queue that is consumed and filled meanwhile."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest

from broker.queues.classic import ClassicQueue
from broker.queues.peeking import Peek
from broker.server.app import Broker
from tests import inside

FAKE = struct.pack("<IIqBBBBI", 0x100000, 0, 0, 0, 0, 0, 0, 900_000)
"""What looks like the head of a record, of 1 MiB."""


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    with inside.in_memory() as directory:
        async with inside.running(directory) as found:
            yield found


@pytest.mark.parametrize("shift", range(0, 24, 4))
async def test_a_look_does_not_continue_in_the_middle_of_a_message(
    broker: Broker, shift: int
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("q", durable=False)
    queue = vhost.queues["q"]
    assert isinstance(queue, ClassicQueue)
    inside.publish(vhost, "q", 100, b"a" * 100)
    peek = Peek(queue, 200, 1 << 20)
    assert peek.go_on() == 1
    shown = len(peek.rows)
    # What was not looked at goes, and its positions are given again.
    inside.ack(queue, 100)
    body = (FAKE * 1000)[shift : shift + 20_000]
    inside.publish(vhost, "q", 3, body)
    while peek.go_on():
        pass
    assert [row[3] for row in peek.rows[shown:]] == [body] * 3


@pytest.mark.parametrize("sizes", [(100, 20_000), (3000, 10), (10, 3000)])
async def test_a_look_shows_each_message_that_stays_whatever_comes_and_goes(
    broker: Broker, sizes: tuple[int, int]
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("q", durable=False)
    queue = vhost.queues["q"]
    assert isinstance(queue, ClassicQueue)
    bodies = {b"%d" % number + bytes(sizes[number % 2]) for number in range(300)}
    for body in sorted(bodies):
        inside.publish(vhost, "q", 1, body)
    peek = Peek(queue, 1000, 8 << 20)
    while peek.go_on():
        inside.ack(queue, 10)
        inside.publish(vhost, "q", 2, b"new" + bytes(sizes[0]))
    told = {row[3] for row in peek.rows}
    assert told <= bodies | {b"new" + bytes(sizes[0])}


async def test_a_preview_counts_what_is_there_when_all_before_it_is_gone(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_queue("q", durable=False)
    queue = vhost.queues["q"]
    inside.publish(vhost, "q", 3000, b"a" * 100)
    rules = {"routing_key": None, "header": "h", "header_value": "x", "since": -1, "until": -1}
    preview = broker.transfers.preview(queue, 10_000, **rules)
    assert preview.go_on(1) != 0
    before = preview.looked
    inside.ack(queue, 3000)
    inside.publish(vhost, "q", 200, (FAKE * 100)[4:])
    while preview.go_on(500_000):
        pass
    assert preview.looked == before + 200
