"""Consumers do not starve while publishers flood their queue: publishes are read for a share of the
time. The rule is tested with a clock that the test sets, its way through the broker by what waits.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from broker.kernel.reading import Reading
from broker.server.tcp import RECEIVE_BYTES
from tests.amqp import raw
from tests.bench import generator
from tests.conftest import Make
from tests.fuzz.inside import Inside

MS = 1_000_000
TURN_NS = 50_000
"""What a turn takes beside publishes."""
CHUNK_NS = 70_000
PUBLISHERS = 4
PREFETCH = 100
DELIVER = b"\x00\x3c\x00\x3c"
ACK = raw.method(1, "basic.ack", delivery_tag=0, multiple=True)
PUBLISH = raw.publish(1, "", "flooded", b"sixteen bytes ..")
FLOOD = PUBLISH * (RECEIVE_BYTES // len(PUBLISH))


class Flood:
    """Turns on a clock of their own. In each, consumers take `taken` of `room` messages, and every
    publisher has a chunk if publishes may be read."""

    def __init__(self, share: int, taken: int, room: int) -> None:
        self.reading = Reading(share)
        self.taken, self.room = taken, room
        self.now = 1_000 * MS
        self.published = 0
        self.turns = 0
        self.reading.end_turn(self.now)

    def turn(self) -> None:
        for _ in range(PUBLISHERS):
            if self.reading.is_over():
                break
            self.now += CHUNK_NS
            self.published += CHUNK_NS
            self.reading.spend(self.now - CHUNK_NS, self.now, True)
        self.reading.delivered(self.taken, self.room)
        self.now += TURN_NS
        self.turns += 1
        self.reading.end_turn(self.now)

    def share(self) -> float:
        """Of 100 ms, the part in which publishes were read."""
        since, published = self.now, self.published
        while self.now < since + 100 * MS:
            self.turn()
        return (self.published - published) / (self.now - since)


def in_line(flood: Flood) -> list[int]:
    """All publishers wait. Returns the list of those that were called since, which grows."""
    called: list[int] = []
    for name in range(PUBLISHERS):
        flood.reading.wait(functools.partial(called.append, name), flood.now, flood.now)
    return called


def read_on(reading: Reading) -> None:
    """As the end of a turn does it."""
    while (callback := reading.next_in_line()) is not None:
        callback()


@pytest.mark.parametrize("share", [5, 20, 50])
def test_publishes_take_their_share_of_the_time_and_no_more(share: int) -> None:
    flood = Flood(share, taken=PREFETCH, room=PREFETCH)
    assert flood.share() > 0  # the rule begins with the first window
    assert flood.reading.is_limited
    assert share / 100 * 0.9 <= flood.share() <= share / 100 * 1.01


def test_a_share_of_100_is_no_limit() -> None:
    flood = Flood(100, taken=PREFETCH, room=PREFETCH)
    flood.share()
    assert not flood.reading.is_limited
    assert flood.published == flood.turns * PUBLISHERS * CHUNK_NS


def test_of_those_that_wait_only_as_many_read_on_as_have_time() -> None:
    flood = Flood(20, taken=PREFETCH, room=PREFETCH)
    flood.share()
    called = in_line(flood)
    while len(called) < PUBLISHERS:
        before = len(called)
        read_on(flood.reading)
        # Two chunks of 70 us take what gathers at most, 100 us.
        assert len(called) - before <= 2
        for _ in called[before:]:
            flood.now += CHUNK_NS
            flood.reading.spend(flood.now - CHUNK_NS, flood.now, True)
        flood.reading.delivered(flood.taken, flood.room)
        flood.now += TURN_NS
        flood.reading.end_turn(flood.now)
    assert called == list(range(PUBLISHERS)), "in the order in which they came"


def test_all_that_wait_read_on_when_the_limit_ends() -> None:
    flood = Flood(20, taken=PREFETCH, room=PREFETCH)
    flood.share()
    called = in_line(flood)
    for _ in range(2):
        flood.now += 100 * MS
        flood.reading.end_turn(flood.now)
    assert not flood.reading.is_limited
    read_on(flood.reading)
    assert called == list(range(PUBLISHERS))


@pytest.mark.parametrize("room", [PREFETCH, 10])
def test_slow_consumers_slow_no_publisher(room: int) -> None:
    flood = Flood(50, taken=0, room=room)
    for _ in range(100):
        # Half of their prefetch in a window of 4 ms.
        flood.taken = room // 2
        flood.turn()
        flood.taken = 0
        while flood.turns % 20:
            flood.turn()
    assert not flood.reading.is_limited
    assert flood.reading.offered == RECEIVE_BYTES
    assert flood.published == flood.turns * PUBLISHERS * CHUNK_NS


def test_consumers_that_wait_for_no_ack_slow_no_publisher() -> None:
    flood = Flood(50, taken=100_000, room=0)
    flood.share()
    assert not flood.reading.is_limited
    assert flood.published == flood.turns * PUBLISHERS * CHUNK_NS


def test_the_limit_ends_when_the_consumers_have_all_they_take() -> None:
    flood = Flood(50, taken=PREFETCH, room=PREFETCH)
    flood.share()
    assert flood.reading.is_limited and flood.reading.offered < RECEIVE_BYTES
    flood.taken = 0
    flood.share()
    assert not flood.reading.is_limited and flood.reading.offered == RECEIVE_BYTES


@pytest_asyncio.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    inside = Inside(tmp_path / "data", 1)
    await inside.start()
    try:
        yield inside
    finally:
        inside.leave()
        await inside.broker.stop()


async def flooded(inside: Inside) -> None:
    """A queue with a consumer on the last connection, and a backlog."""
    wire, session = inside.wires[PUBLISHERS]
    session.feed(
        raw.method(1, "queue.declare", queue="flooded")
        + raw.method(1, "basic.qos", prefetch_count=PREFETCH)
        + FLOOD
        + raw.method(1, "basic.consume", queue="flooded", consumer_tag="c")
    )
    async with asyncio.timeout(60):
        while DELIVER not in wire.out:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0)


def publish(inside: Inside) -> bool:
    """Every publisher is readable; whether one of them waits."""
    sessions = [session for _, session in inside.wires[:PUBLISHERS]]
    for session in sessions:
        if not session.yielding:
            session.feed(FLOOD)
    return waiting(inside) and inside.broker.turn.reading.is_over()


def waiting(inside: Inside) -> bool:
    """Whether something that a publisher sent is not taken yet."""
    return any(session.yielding for _, session in inside.wires[:PUBLISHERS])


async def test_a_flood_waits_while_consumers_take_messages_and_not_any_longer(
    inside: Inside,
) -> None:
    await flooded(inside)
    wire, consumer = inside.wires[PUBLISHERS]
    reading = inside.broker.turn.reading
    has_waited = False
    async with asyncio.timeout(120):
        while not has_waited:
            has_waited = publish(inside)
            if DELIVER in wire.out:
                wire.out.clear()
                consumer.feed(ACK)
            await asyncio.sleep(0)
        # Nothing is acked any more.
        while reading.is_limited or waiting(inside):
            inside.broker.turn.wake()  # where nothing comes there are no turns
            await asyncio.sleep(0)
    assert not reading.line
    assert reading.offered == RECEIVE_BYTES


async def test_the_acks_of_a_client_that_publishes_what_it_worked_off_do_not_wait(
    inside: Inside,
) -> None:
    await flooded(inside)
    wire, consumer = inside.wires[PUBLISHERS]
    queue = inside.broker.vhosts["/"].queues["flooded"]
    async with asyncio.timeout(120):
        while True:
            acked = queue.deliveries.acked
            has_to_wait = publish(inside)
            if DELIVER in wire.out:
                wire.out.clear()
                consumer.feed(ACK + PUBLISH)
                if has_to_wait:
                    break
            await asyncio.sleep(0)
    assert not consumer.yielding
    assert queue.deliveries.acked > acked


async def test_a_publisher_of_whom_little_comes_at_a_time_does_not_wait(inside: Inside) -> None:
    """It waits for its confirms, and so it leaves consumers their time."""
    await flooded(inside)
    wire, consumer = inside.wires[PUBLISHERS]
    queue = inside.broker.vhosts["/"].queues["flooded"]
    calm = inside.wires[PUBLISHERS - 1][1]
    async with asyncio.timeout(120):
        while True:
            for _, session in inside.wires[: PUBLISHERS - 1]:
                if not session.yielding:
                    session.feed(FLOOD)
            if inside.broker.turn.reading.is_over():
                before = queue.counts.published
                calm.feed(PUBLISH * 10)
                assert queue.counts.published == before + 10
                assert not calm.yielding
                break
            if DELIVER in wire.out:
                wire.out.clear()
                consumer.feed(ACK)
            await asyncio.sleep(0)


async def test_what_waited_for_its_time_is_taken_whole(inside: Inside) -> None:
    await flooded(inside)
    wire, consumer = inside.wires[PUBLISHERS]
    queue = inside.broker.vhosts["/"].queues["flooded"]
    async with asyncio.timeout(120):
        while not publish(inside):
            if DELIVER in wire.out:
                wire.out.clear()
                consumer.feed(ACK)
            await asyncio.sleep(0)
        while waiting(inside):  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0)
    assert queue.counts.published % (len(FLOOD) // len(PUBLISH)) == 0, "what waited was taken whole"


@pytest.mark.parametrize("publishers", ["1", "4"])
def test_nothing_of_a_flood_over_sockets_is_lost(make_broker: Make, publishers: str) -> None:
    """What waits stays in its socket; the generator counts, to the last message."""
    broker = make_broker(publish_share="5")
    options = ["--publishers", publishers, "--queues", publishers, "--consumers", publishers]
    acks = ["--ack", "1", "--prefetch", "100", "--count", "300000"]
    assert generator.run(broker.amqp_port, options + acks)["rate"] > 0
    broker.close()
