"""What a connection counts of its bytes and frames: lists, metrics and the usage feed have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp import raw
from tests.amqp.wired import Wired


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    wired = Wired(tmp_path)
    yield wired
    wired.stop()


def counted(wired: Wired) -> tuple[int, int, int, int]:
    """Bytes and frames that came, bytes that left and writes that they left in."""
    wire = wired.wire
    return wire.recv_oct, wire.recv_cnt, wire.output.send_oct, wire.output.send_cnt


def more(wired: Wired, data: bytes) -> tuple[int, ...]:
    """What is counted when these bytes came and the turn is over."""
    before = counted(wired)
    wired.wire.feed(data)
    wired.run()
    return tuple(now - then for now, then in zip(counted(wired), before, strict=True))


def test_every_frame_of_publishes_in_one_packet_is_counted(wired: Wired) -> None:
    name = wired.queue().name
    data = raw.publish(1, "", name, b"body") * 5
    assert more(wired, data) == (len(data), 15, 0, 0)
    assert more(wired, raw.publish(1, "", name, b""))[1] == 2


def test_each_frame_of_other_kinds_is_counted(wired: Wired) -> None:
    queue = wired.queue()
    wired.consume(queue, "c")
    for _ in range(3):
        wired.publish(queue.name)
    wired.run()
    data = b"".join(raw.method(1, "basic.ack", delivery_tag=tag) for tag in (1, 2, 3))
    assert more(wired, data) == (len(data), 3, 0, 0)


def test_what_leaves_in_one_turn_is_one_write_of_its_bytes(wired: Wired) -> None:
    queue = wired.queue()
    wired.consume(queue, "c", no_ack=True)
    wired.run()
    before = counted(wired)
    for body in (b"1", b"22", b"333"):
        wired.publish(queue.name, body)
    while wired.driven.callbacks:
        wired.driven.callbacks.pop(0)()
    written = len(wired.wire.data)
    assert [method.name for method in wired.wire.methods()].count("basic.deliver") == 3
    _, _, octets, writes = counted(wired)
    assert (octets - before[2], writes - before[3]) == (written, 1)
