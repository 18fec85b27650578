"""Publishes, deliveries and acks that are taken together have the effects they have one by one.

The same session is played to two queues: one takes runs; a limit that is never reached makes the
other one look at each message.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.kernel.contracts import Exchange
from broker.queues.classic import ClassicQueue
from broker.schema.errors import FrameError
from tests.amqp import raw
from tests.amqp.wired import Wired
from tests.store.driven import Driven, ready

NEVER_REACHED = {"x-max-length": 1_000_000}
CONFIRM = bytes([0, 60, 0, 80])
"""The method's ids."""

DURABLE = 1 << 32 | 8
"""The incarnation of the durable queue."""


class Session(Wired):
    """With its durable queue and one that is not, and what goes to both."""

    def __init__(self, directory: Path, one_by_one: bool) -> None:
        super().__init__(directory)
        self.directory = directory
        # What is written with direct I/O, as in rounds that follow each other quickly, has to be
        # read from the disk: then the other queue's deliveries come first, in one session alone.
        self.driven.persister.direct.files = self.driven.persister.space_ahead = 0
        self.confirmed: set[int] = set()
        self.queues = {
            "durable": self._queue("d", True, one_by_one),
            "transient": self._queue("t", False, one_by_one),
        }
        for key, names in (
            ("durable", ["durable"]),
            ("transient", ["transient"]),
            ("both", ["durable", "transient"]),
        ):
            queues = tuple(self.queues[name] for name in names)
            self.wire.routes[key.encode()] = Exchange("amq.direct"), queues

    def _queue(self, name: str, durable: bool, one_by_one: bool) -> ClassicQueue:
        driven = self.driven
        return ClassicQueue(
            driven.turn,
            driven.persister,
            str(driven.parent),
            "/",
            name,
            DURABLE if durable else DURABLE + 1,
            durable=durable,
            arguments=NEVER_REACHED if one_by_one else {},
        )

    def stop(self) -> None:
        for queue in self.queues.values():
            queue.close()
        super().stop()

    def talk(self, data: bytes) -> bytes:
        """Bytes of the client in one chunk, and the turns that follow. Returns what it is told,
        but for confirms."""
        self.wire.feed(data)
        self.run()
        return self.take()

    def run(self) -> list[raw.Method]:
        """Turns until there is nothing to do, with what they read from the disk: whether the system
        has that in memory may differ."""
        driven = self.driven
        reader = driven.persister.reader
        while driven.callbacks or reader.open:
            while driven.callbacks:
                driven.callbacks.pop(0)()
            if reader.open:
                ready([reader.event_fd], None)
                driven.persister.on_read()
        return []

    def take(self) -> bytes:
        """What was written, but for confirms, which may come before what had to be read."""
        written, self.wire.data = self.wire.data, b""
        told, at = b"", 0
        while at < len(written):
            end = at + 8 + int.from_bytes(written[at + 3 : at + 7], "big")
            if written[at] == raw.METHOD and written[at + 7 : at + 11] == CONFIRM:
                tag = int.from_bytes(written[at + 11 : at + 19], "big")
                self.confirmed.update(range(1 if written[at + 19] else tag, tag + 1))
            else:
                told += written[at:end]
            at = end
        return told

    def figures(self) -> dict[str, object]:
        """What is counted."""
        found: dict[str, object] = dict(self.channel.counters())
        found["unacked"] = self.channel.messages_unacknowledged
        found["frames"] = self.wire.recv_cnt
        found["flows"] = sorted(self.channel.published_to().values())
        for name, queue in self.queues.items():
            found[name] = (
                queue.counts.published,
                queue.counts.bytes_in,
                queue.counts.confirmed,
                queue.deliveries.delivered,
                queue.deliveries.delivered_no_ack,
                queue.deliveries.bytes_out,
                queue.deliveries.acked,
                queue.messages_ready,
                queue.messages_unacknowledged,
                queue.message_bytes,
            )
        return found


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[tuple[Session, Session]]:
    pair = []
    for name in ("runs", "single"):
        (tmp_path / name).mkdir()
        pair.append(Session(tmp_path / name, name == "single"))
    yield pair[0], pair[1]


def publishes(chance: random.Random) -> bytes:
    """A few messages in a row, alike or not."""
    key = chance.choice(["durable", "durable", "transient", "both"])
    values: dict[str, Any] = chance.choice(
        [{}, {"delivery_mode": 2}, {"delivery_mode": 2}, {"delivery_mode": 1, "priority": 3}]
    )
    data = b""
    for _ in range(chance.choice([1, 2, 5, 40, 100])):
        more: dict[str, Any] = {}
        if not chance.randrange(20):
            more = chance.choice(
                [{"headers": {"a": 1}}, {"message_id": "m" * chance.randrange(40), "type": "t"}]
            )
        size = chance.choice([0, 1, 3, 7, 8, 16, 33, 100, 5000, 20000])
        size = chance.choice([size, 16, 16, 16])
        data += raw.publish(
            1,
            "",
            key,
            chance.randbytes(size),
            frame_max=chance.choice([131072] * 9 + [4096]),
            **values,
            **more,
        )
    return data


@pytest.mark.parametrize("seed", range(12))
def test_a_session_goes_as_one_by_one(sessions: tuple[Session, Session], seed: int) -> None:
    chance = random.Random(seed)
    if seed % 2:
        for each in sessions:
            each.channel.select_confirms()
    without_ack = seed % 3 > 0
    # Where all are acked at once, no more than are settled without a look at the time.
    prefetch = chance.choice([7, 64, 200] if without_ack else [0, 7, 64, 1000])
    for each in sessions:
        each.channel.deliveries.set_prefetch(prefetch)
        each.consume(each.queues["durable"], "d", prefetch_count=prefetch)
        each.consume(each.queues["transient"], "t" * 250, no_ack=without_ack)
    acked = 0
    for _ in range(40):
        data = publishes(chance)
        newest = sessions[1].channel.deliveries.next_tag - 1
        if newest > acked and chance.randrange(2):
            # More at once would be work that may wait for another turn.
            acked = chance.randrange(acked, min(newest, acked + 250)) + 1
            # Zero is all; and the tag of a delivery that wants no ack is unknown.
            tag = 0 if without_ack else acked
            data += raw.method(1, "basic.ack", delivery_tag=tag, multiple=True)
        if chance.randrange(2):
            data += publishes(chance)
        if not chance.randrange(4):
            # The chunk ends anywhere.
            cut = chance.randrange(len(data))
            told = [each.talk(data[:cut]) for each in sessions]
            assert told[0] == told[1]
            data = data[cut:]
        told = [each.talk(data) for each in sessions]
        assert told[0] == told[1]
        assert [each.wire.failures for each in sessions] == [[], []]
        assert sessions[0].figures() == sessions[1].figures()
        if not chance.randrange(3):
            for each in sessions:
                each.driven.sync()
                each.run()
            told = [each.take() for each in sessions]
            assert told[0] == told[1]
            assert sessions[0].confirmed == sessions[1].confirmed
    left = []
    for each in sessions:
        each.stop()
        again = Driven(each.directory, incarnation=DURABLE)
        again.recover()
        left.append(again.drain())
        again.stop()
    assert left[0] == left[1]


def test_a_fault_comes_behind_the_publishes_before_it(sessions: tuple[Session, Session]) -> None:
    good = raw.publish(1, "", "durable", b"good", delivery_mode=2)
    torn = bytearray(raw.publish(1, "", "durable", b"bad", delivery_mode=2))
    torn[-1] = 0
    for each in sessions:
        each.wire.feed(good * 40 + bytes(torn))
        assert [type(error) for error in each.wire.failures] == [FrameError]
        assert each.queues["durable"].messages_ready == 40
        each.stop()


@pytest.mark.parametrize(
    "properties", [b"\x10\x00", b"\x10\x00\x02\x02", b"\x80\x00\x09ab", b"\x00\x01"]
)
def test_properties_that_do_not_fit_are_refused_in_a_run(
    sessions: tuple[Session, Session], properties: bytes
) -> None:
    good = raw.publish(1, "", "durable", b"good", delivery_mode=2)
    method = raw.method(1, "basic.publish", exchange="", routing_key="durable")
    header = raw.frame(2, 1, b"\0\x3c\0\0" + (3).to_bytes(8, "big") + properties)
    for each in sessions:
        each.wire.feed(good * 3 + method + header + raw.frame(3, 1, b"bad"))
        assert [type(error) for error in each.wire.failures] == [FrameError]
        assert each.queues["durable"].messages_ready == 3
        each.stop()


def test_a_body_longer_than_the_most_is_refused_in_a_run(
    sessions: tuple[Session, Session],
) -> None:
    good = raw.publish(1, "", "durable", b"good", delivery_mode=2)
    for each in sessions:
        each.wire.set_tuned(100, 4096)
        each.wire.feed(good * 3 + raw.publish(1, "", "durable", b"x" * 5000))
        assert len(each.wire.failures) == 1
        assert each.queues["durable"].messages_ready == 3
        each.stop()


def test_confirms_come_when_the_last_of_a_run_is_on_disk(
    sessions: tuple[Session, Session],
) -> None:
    data = raw.publish(1, "", "durable", b"good", delivery_mode=2) * 50
    told = []
    for each in sessions:
        each.channel.select_confirms()
        assert each.talk(data) == b""
        assert each.channel.messages_unconfirmed == 50
        each.driven.sync()
        each.run()
        told.append(each.wire.data)
        each.stop()
    assert told[0] == told[1] == raw.method(1, "basic.ack", delivery_tag=50, multiple=True)
