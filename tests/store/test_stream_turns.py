"""What the readers of a stream do in one turn of the loop has an end, however little of a message
is body and however much a filter asks for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.fields.codec import encode_table
from broker.kernel.contracts import Consumer
from broker.queues.stream import StreamQueue
from broker.queues.stream_arguments import Start
from broker.queues.stream_filter import ALL, ANY, BY_DEFAULT, StreamFilter
from tests.inner import takes
from tests.store.bodies_rig import Rig
from tests.store.taking_channel import TakingChannel

COUNT = 60
HEADERS = 60_000
"""Bytes of headers of each message; the bodies have one."""
TURN_BYTES_MAX = 1 << 20

COMMAS = 60_000
ASKED = 3_000


def with_headers(headers: dict[str, Any]) -> bytes:
    """The properties of a message that has nothing but headers."""
    return b"\x20\x00" + encode_table(headers)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "data", queues=0, segment_size=16 << 20)
    yield rig
    rig.stop()


@pytest.fixture
def stream(rig: Rig) -> Iterator[StreamQueue]:
    """A stream whose messages are nearly all headers."""
    arguments = {"x-queue-type": "stream"}
    stream = StreamQueue(
        rig.turn, rig.persister, f"{rig.path}/queues", "/", "s", 7, arguments=arguments
    )
    properties = with_headers({"pad": "x" * HEADERS})
    for number in range(COUNT):
        stream.put(b"", b"k", properties, bytes([number]), True)
    rig.persister.after_round(lambda: None, records=True)
    rig.settle()
    yield stream
    stream.close()


def test_a_consumers_turn_ends_where_messages_have_long_headers(
    rig: Rig, stream: StreamQueue
) -> None:
    class Reading:
        prefetch_count = COUNT
        global_prefetch_count = 0

    channel = TakingChannel()
    reader: Any = stream.consumed_by(Reading(), "c", False, False, {"x-stream-offset": "first"})
    reader.add_consumer(Consumer(reader, channel, "c", False))
    after_turns = [0]
    rig.turn.after = lambda: after_turns.append(len(channel.taken))
    for _ in range(COUNT):
        if len(channel.taken) < COUNT:
            rig.turn.run()
            rig.settle()
    rig.turn.after = rig.persister.collect
    assert channel.taken == [bytes([number]) for number in range(COUNT)]
    most = max(after - before for before, after in itertools.pairwise(after_turns))
    assert most * HEADERS <= TURN_BYTES_MAX


def test_looking_into_a_stream_takes_breaks_where_messages_have_long_headers(
    rig: Rig, stream: StreamQueue
) -> None:
    breaks: list[Callable[[], None]] = []
    answers: list[list[Any]] = []
    stream.later = lambda seconds, callback: breaks.append(callback)
    stream.browse(Start("first"), COUNT, 1 << 30, answers.append)
    taken = 0
    while not answers:
        assert taken < len(breaks), "neither done nor to be gone on with"
        breaks[taken]()
        taken += 1
    assert [row[0] for row in answers[0]] == list(range(COUNT))
    assert taken >= COUNT * HEADERS // TURN_BYTES_MAX


@pytest.mark.parametrize("match", [BY_DEFAULT, ALL, ANY])
def test_a_long_filter_value_is_walked_through_once(match: int) -> None:
    """Each part is looked for among all values in a few steps, not compared with each of them."""
    asked = StreamFilter([b"%d" % number for number in range(ASKED)], [], False, match)
    assert not takes(asked, with_headers({"x-stream-filter-value": "," * COMMAS}))
    halves = ASKED.bit_length()
    assert COMMAS < asked.wanted_values.looks <= (COMMAS + 1) * halves


@pytest.mark.parametrize("match", [ALL, ANY])
def test_many_headers_are_walked_through_once(match: int) -> None:
    pairs = [(b"h%d" % number, b"1") for number in range(ASKED)]
    asked = StreamFilter([], pairs, False, match)
    has = {f"x{number}": 1 for number in range(COMMAS)}
    assert not takes(asked, with_headers(has))
    assert COMMAS <= asked.wanted_names.looks <= COMMAS * ASKED.bit_length()
