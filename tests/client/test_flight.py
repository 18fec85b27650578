"""Messages under way between two channels: what is left out is acknowledged in its turn, and what
cannot be published counts as refused."""

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
    """A flight whose messages with an even tag are left out, and those above 1000 cannot be
    published."""

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
        if number > 1000:
            raise ValueError(f"{number} has no room")
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

    def nacked(self) -> list[tuple[int, bool]]:
        return [
            (each["delivery_tag"], bool(each["requeue"]))
            for _, name, each in sent(self.source)
            if name == "basic.nack"
        ]

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
    for number in range(2, 1000, 2):
        under.deliver(number)
    assert under.published() == []
    assert under.acked()[-1] == (998, True)
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


# What cannot be published.


def test_what_cannot_be_published_is_dropped_in_its_turn_and_counted() -> None:
    under = Under()
    under.flight.on_unfit = "drop"
    under.deliver(1, 1001, 3)
    assert len(under.published()) == 2
    assert under.acked() == [], "1 is not confirmed"
    under.confirm(1)
    assert under.acked() == [(1001, True)]
    under.confirm(2)
    flight = under.flight
    assert (flight.moved, flight.refused, flight.dropped, flight.unfit) == (2, 1, 1, 1)
    assert (flight.count, flight.unfit_why) == (0, "1001 has no room")


@pytest.mark.parametrize("numbers", [(1001,), (1001, 1, 3), (1, 1001, 3), (1, 3, 1001)])
def test_what_is_held_because_it_has_no_room_is_tried_again_as_it_came(
    numbers: tuple[int, ...],
) -> None:
    under = Under()
    under.deliver(*numbers)
    under.published()
    flight = under.flight
    assert (flight.held_count, flight.strays, flight.refused) == (1, 1, 1)
    for number in range(1, len(numbers)):
        under.confirm(number)
    assert under.acked() == [(tag, False) for tag in numbers if tag < 1000]
    flight.again()
    assert (flight.held_count, flight.strays, flight.refused) == (1, 1, 2)
    assert under.published() == []


def test_what_is_held_gets_its_exchange_when_there_is_room_and_is_no_double() -> None:
    under = Under()
    room = [False]
    found: list[bool] = []

    def rewrite(listed: bytes, is_marked: bool) -> bytes:
        found.append(is_marked)
        if not room[0]:
            raise ValueError("no room")
        return listed

    under.flight = Flight(under.channel, under.target, exchange=b"x", rewrite=rewrite)
    under.flight.rewrite_all = True
    under.flight.repeat = lambda listed: b"never called"
    under.deliver(1)
    room[0] = True
    under.flight.again()
    (published,) = under.published()
    assert published["exchange"] == "x"
    assert found == [False, False]
    under.confirm(1)
    assert under.acked() == [(1, False)]
    assert (under.flight.strays, under.flight.count, under.flight.moved) == (0, 0, 1)
    under.deliver(3)
    under.confirm(2)
    assert under.acked() == [(3, True)], "from now on together again"


def test_what_cannot_be_published_is_taken_apart_as_it_came() -> None:
    under = Under()
    under.flight.on_unfit = "apart"
    under.deliver(1, 1001, 3)
    (message,) = under.flight.refusals
    assert (message.delivery_tag, message.exchange, message.routing_key) == (1001, b"ex", b"key")
    under.confirm(1)
    assert under.acked() == [(1, False)], "not together with what is taken apart"
    under.flight.parted(message, False)
    assert under.acked() == [(1001, False)]
    under.confirm(2)
    assert under.acked() == [(3, True)]
    assert (under.flight.count, under.flight.parted_count) == (0, 1)


@pytest.mark.parametrize("confirms", [True, False])
def test_what_cannot_be_published_is_rejected_at_the_source(confirms: bool) -> None:
    under = Under(confirms=confirms)
    under.flight.on_unfit = "reject"
    under.deliver(1001, 1003)
    assert under.nacked() == [(1001, False), (1003, False)]
    assert (under.flight.count, under.flight.dropped, under.flight.bytes) == (0, 2, 0)
    under.deliver(1)
    if confirms:
        under.confirm(1)
    assert under.acked() == [(1, True)]


def test_what_was_refused_and_has_no_room_for_its_mark_is_dropped_alone() -> None:
    under = Under()
    under.flight.on_unfit = "drop"
    under.deliver(1, 3, 5)
    under.confirm(1, ack=False)
    under.confirm(2)

    def no_room(listed: bytes) -> bytes:
        raise ValueError("no room")

    under.flight.repeat = no_room
    under.acked()
    under.flight.again()
    under.confirm(3)
    assert under.acked() == [(5, False), (1, False)]
    assert (under.flight.count, under.flight.strays) == (0, 0)
    under.deliver(7)
    under.confirm(4)
    assert under.acked() == [(7, True)]


def plain(under: Under, listed: bytes, tag: int = 1) -> None:
    """Delivers a message with these properties over a flight that changes none."""
    under.source.feed(with_properties(delivery(tag, b"body"), listed))
    under.source.events.clear()
    under.flight.take(under.consumer.batch, True)
    under.consumer.batch.drop()


def test_properties_that_are_longer_than_a_frame_of_the_target_are_refused() -> None:
    under = Under()
    under.flight.rewrite_all = False
    at_most = properties.encode({"headers": {"pad": "x" * (131_072 - 20 - 15)}})
    assert len(at_most) == 131_072 - 20
    plain(under, at_most)
    assert len(under.published()) == 1
    plain(under, properties.encode({"headers": {"pad": "x" * (131_072 - 20 - 14)}}), 3)
    assert under.published() == []
    assert under.flight.held_count == 1
    assert "longer than a frame of 131072 bytes" in under.flight.unfit_why
    under.confirm(1)
    assert under.acked() == [(1, False)], "the refused one has no number"


@pytest.mark.parametrize("given", [{}, {"content_type": "t" * 200, "content_encoding": "e"}])
@pytest.mark.parametrize(("count", "is_fit"), [(64_400, True), (65_000, False)])
def test_headers_with_more_values_than_a_target_takes_are_refused_where_it_is_known(
    given: dict[str, str], count: int, is_fit: bool
) -> None:
    under = Under()
    under.flight.rewrite_all = False
    listed = properties.encode({**given, "headers": {"many": [None] * count}, "app_id": "a"})
    plain(under, listed)
    assert len(under.published()) == 1, "another broker may take it"
    under.flight.checks_headers = True
    plain(under, listed, 3)
    assert len(under.published()) == is_fit
    assert under.flight.held_count == (not is_fit)


@pytest.mark.parametrize("is_checked", [True, False])
def test_headers_that_a_target_does_not_take_are_refused_however_short_they_are(
    is_checked: bool,
) -> None:
    under = Under()
    under.flight.rewrite_all = False
    under.flight.checks_headers = True
    # A table of 40 arrays inside one another, as a broker without such a bound may have it.
    nested = b""
    for _ in range(40):
        nested = b"A" + len(nested).to_bytes(4, "big") + nested
    fields = b"\x01n" + nested
    listed = (1 << 13).to_bytes(2, "big") + len(fields).to_bytes(4, "big") + fields
    under.flight.checks_plain = is_checked
    plain(under, listed)
    assert len(under.published()) == (not is_checked)
    assert under.flight.held_count == is_checked
    plain(under, properties.encode({"headers": {"a": 1}}), 3)
    assert len(under.published()) == 1


def test_only_messages_with_a_user_id_are_looked_at_where_none_is_changed() -> None:
    under = Under()
    seen: list[Any] = []

    def rewrite(listed: bytes, is_marked: bool) -> bytes:
        seen.append(properties.decode(listed))
        return b"\0\0"

    under.flight = Flight(under.channel, under.target, exchange=b"x", rewrite=rewrite)
    every = {"message_id": "m", "app_id": "a", "type": "t", "timestamp": 5, "cluster_id": "c"}
    plain(under, properties.encode(every))
    assert seen == []
    plain(under, properties.encode({**every, "user_id": "ada"}), 3)
    assert [each["user_id"] for each in seen] == ["ada"]
