"""Messages under way between two channels: what is left out is acknowledged in its turn."""

from __future__ import annotations

from typing import Any

import pytest

from broker.client.channel import ChannelCore, ConsumerCore
from broker.client.core import ClientCore
from broker.client.flight import Flight
from broker.fields import properties
from broker.wire.method_frames import method_frame
from tests.client.test_core import channelled, consuming, delivery, sent


class Under:
    """A flight whose messages with an even tag are left out."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.source: ClientCore
        self.consumer: ConsumerCore
        self.channel: ChannelCore
        self.source, self.channel, self.consumer = consuming()
        self.far, self.target = channelled()
        if confirms:
            self.target.select_confirms()
        self.flight = Flight(
            self.channel, self.target, exchange=b"x", rewrite=self._rewrite, mandatory=False
        )
        self.flight.rewrite_all = True
        self.flight.repeat = lambda listed: listed

    def _rewrite(self, listed: bytes, is_marked: bool) -> bytes | None:
        number = int(properties.decode(listed)["message_id"])
        return None if number % 2 == 0 else listed

    def deliver(self, *numbers: int) -> None:
        data = b""
        for number in numbers:
            whole = delivery(number, b"b%d" % number)
            listed = properties.encode({"message_id": str(number)})
            data += with_properties(whole, listed)
        self.source.feed(data)
        self.source.events.clear()
        self.flight.take(self.consumer.batch, True)
        self.consumer.batch.drop()

    def published(self) -> list[Any]:
        return [each for _, name, each in sent(self.far) if name == "basic.publish"]

    def acked(self) -> list[tuple[int, bool]]:
        self.flight.flush_acks()
        return [
            (each["delivery_tag"], bool(each["multiple"]))
            for _, name, each in sent(self.source)
            if name == "basic.ack"
        ]

    def confirm(self, tag: int, *, multiple: bool = False, ack: bool = True) -> None:
        name = "basic.ack" if ack else "basic.nack"
        self.far.feed(method_frame(1, name, delivery_tag=tag, multiple=multiple))
        self.far.events.clear()
        unconfirmed = self.target.unconfirmed
        assert unconfirmed is not None
        refused = [*unconfirmed.refused]
        unconfirmed.refused.clear()
        self.flight.nacked(refused)
        self.flight.collect()


def with_properties(whole: bytes, listed: bytes) -> bytes:
    """A delivery whose header has these properties instead of none."""
    at = whole.index(b"\x00\x3c\x00\x00", 1)
    size = int.from_bytes(whole[at - 4 : at], "big")
    assert whole[at + 12 : at + 14] == b"\0\0"
    length = (size - 2 + len(listed)).to_bytes(4, "big")
    return whole[: at - 4] + length + whole[at : at + 12] + listed + whole[at + 14 :]


def test_what_is_left_out_is_acknowledged_behind_what_came_before() -> None:
    under = Under()
    under.deliver(1, 2, 3, 4)
    assert len(under.published()) == 2
    assert under.acked() == [], "1 is not confirmed"
    under.confirm(1)
    assert under.acked() == [(2, True)]
    under.confirm(2)
    assert under.acked() == [(4, True)]
    assert (under.flight.moved, under.flight.count) == (2, 0)


def test_what_is_left_out_alone_is_acknowledged_at_once_and_takes_no_memory() -> None:
    under = Under()
    for number in range(2, 2000, 2):
        under.deliver(number)
    assert under.published() == []
    assert under.acked()[-1] == (1998, True)
    assert (under.flight.bytes, under.flight.count) == (0, 0)


def test_without_confirms_it_is_acknowledged_with_the_others() -> None:
    under = Under(confirms=False)
    under.deliver(1, 2, 3, 4)
    assert len(under.published()) == 2
    assert under.acked() == [(4, True)]
    assert (under.flight.moved, under.flight.bytes) == (2, 0)


@pytest.mark.parametrize("numbers", [(1, 2, 3, 5), (2, 4, 1, 3, 5), (1, 3, 4, 6, 5, 8)])
def test_a_refused_message_is_found_among_those_left_out(numbers: tuple[int, ...]) -> None:
    under = Under()
    under.deliver(*numbers)
    under.published()
    under.confirm(2, ack=False)
    under.confirm(1)
    assert under.flight.held_count == 1
    under.confirm(3)
    assert {tag for tag, _ in under.acked()} & {3} == set(), "3 was refused"
    under.flight.again()
    assert len(under.published()) == 1
    under.confirm(4)
    assert under.flight.count == 0
    assert under.flight.moved == 3


@pytest.mark.parametrize("count", range(1, 7))
def test_refused_messages_are_counted_until_each_of_them_has_arrived(count: int) -> None:
    under = Under()
    under.deliver(*range(1, 2 * count, 2))
    for number in range(1, count + 1):
        under.confirm(number, ack=False)
    under.flight.again()
    for number in range(1, count + 1):
        assert under.flight.strays == count + 1 - number
        under.confirm(count + number)
    assert (under.flight.strays, under.flight.count) == (0, 0)
    assert under.acked() == [(tag, False) for tag in range(1, 2 * count, 2)]
    under.deliver(101, 103)
    under.confirm(2 * count + 2, multiple=True)
    assert under.acked() == [(103, True)], "from now on together again"


def test_a_message_that_is_refused_again_is_not_acknowledged_with_a_later_one() -> None:
    under = Under()
    under.deliver(1, 3, 5, 7)
    for number in range(1, 5):
        under.confirm(number, ack=False)
    under.flight.again()
    under.confirm(5)
    for number in range(6, 9):
        under.confirm(number, ack=False)
    under.deliver(9)
    under.confirm(9)
    assert under.acked() == [(1, False), (9, False)]
    assert under.flight.held_count == 3


def test_it_hands_exchange_and_key_to_who_asks_for_them() -> None:
    under = Under()
    found: list[tuple[bytes, bytes]] = []

    def rewrite(listed: bytes, is_marked: bool, exchange: bytes, key: bytes) -> bytes:
        found.append((exchange, key))
        return listed

    under.flight = Flight(under.channel, under.target, exchange=b"x", rewrite=rewrite)
    under.flight.rewrite_all = under.flight.with_names = True
    under.deliver(1)
    assert found == [(b"ex", b"key")]
