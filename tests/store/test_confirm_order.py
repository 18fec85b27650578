"""A confirm's bytes leave only after what it covers is on disk: write, sync, then confirm."""

from __future__ import annotations

import json
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.client import Client, Confirm, method, publish, short
from tests.bench.leveret import Leveret
from tests.crash import planted_build
from tests.store.durability import Event, Place, violations

MESSAGES = 2000
JOURNAL_MAGIC = b"LVRJ\x01\x00\x00\x00"
EXCHANGE = "order.fanout"
QUEUES = ("order.one", "order.two")


def good_order() -> list[Event]:
    """A recording of one message in one new queue, in the order it has to be in."""
    return [
        ("mkdir", "/data/queue", 0, 0, 0),
        ("open", "/data/queue/msgs.1", 0, 0, 0),
        ("write", "/data/queue/msgs.1", 0, 8, 0),
        ("write", "/data/queue/msgs.1", 8, 100, 0),
        ("sync_directory", "/data", 0, 0, 0),
        ("sync_directory", "/data/queue", 0, 0, 0),
        ("sync", "/data/queue/msgs.1", 0, 0, 0),
        ("confirm", None, 1, 0, 0),
    ]


def judge(events: list[Event]) -> list[str]:
    return violations(events, "/data", ["/data"], lambda _: [("/data/queue/msgs.1", 8, 108)])


def test_it_finds_nothing_wrong_in_a_right_order() -> None:
    assert judge(good_order()) == []


def test_it_takes_a_sync_of_the_file_system_for_all_syncs() -> None:
    events = [event for event in good_order() if not event[0].startswith("sync")]
    events.insert(-1, ("sync_file_system", "/data", 0, 0, 0))
    assert judge(events) == []


@pytest.mark.parametrize("index", [1, 3, 4, 5, 6])
def test_it_finds_a_missing_step(index: int) -> None:
    events = good_order()
    removed = events.pop(index)
    if removed[0] == "open":  # the file would not be there, so neither would its bytes
        events = [event for event in events if event[0] != "write"]
    assert len(judge(events)) == 1


@pytest.mark.parametrize("index", [3, 4, 5, 6])
def test_it_finds_a_confirm_that_came_before_a_step(index: int) -> None:
    events = good_order()
    events.append(events.pop(index))
    assert len(judge(events)) == 1


def test_it_finds_a_write_that_came_after_the_sync() -> None:
    events = good_order()
    events.insert(-1, events.pop(3))
    assert len(judge(events)) == 1


def test_it_finds_a_sync_that_failed() -> None:
    events = good_order()
    events[6] = ("sync", "/data/queue/msgs.1", 0, 0, 5)
    assert len(judge(events)) == 1


@pytest.fixture
def make_recorded(tmp_path: Path) -> Iterator[Callable[..., Leveret]]:
    """A function that starts a broker with the recorder on; its arguments are more options."""
    brokers: list[Leveret] = []

    def make(*options: str, planted: str = "") -> Leveret:
        command = [sys.executable, "-m", "tests.store.recorded", "broker"]
        extra = ["--segment-size", "65536", *options]
        broker = Leveret(tmp_path, command=command, extra=extra)
        broker.environment["WRITE_RECORDING_TO"] = str(tmp_path / "recording")
        broker.environment["PLANTED_FAULT"] = planted
        if planted:
            planted_build.build()  # the broker, which has a time to start in, finds it compiled
        broker.start()
        brokers.append(broker)
        return broker

    yield make
    for broker in brokers:
        broker.stop()


def publish_with_confirms(broker: Leveret) -> None:
    """Declares two durable queues, publishes to both, to each alone, and waits for all confirms.

    Message n (from 1) carries n in its first 8 bytes; every third goes to both queues.
    """
    client = Client(broker.port)
    arguments = b"\0\0" + short(EXCHANGE) + short("fanout") + b"\2" + b"\0\0\0\0"
    client.send(method(1, 40, 10, arguments))
    client.wait(40, 11)
    for queue in QUEUES:
        client.declare_queue(queue)
        bind = b"\0\0" + short(queue) + short(EXCHANGE) + short("") + b"\0\0\0\0\0"
        client.send(method(1, 50, 20, bind))
        client.wait(50, 21)
    client.select_confirms()
    confirmed = 0
    for number in range(1, MESSAGES + 1):
        body = struct.pack(">Q", number) + bytes(number % 300)
        exchange, key = (EXCHANGE, "") if number % 3 == 0 else ("", QUEUES[number % 2])
        client.send(publish(exchange, key, body, True))
        while confirmed < number - (number % 7):
            client.receive()
            confirmed = max([confirmed, *told(client)])
    while confirmed < MESSAGES:
        client.receive()
        confirmed = max([confirmed, *told(client)])
    client.close()


def told(client: Client) -> list[int]:
    """Numbers of the confirms that came; none of them negative."""
    confirms = [event for event in client.events if isinstance(event, Confirm)]
    client.events.clear()
    assert all(confirm.ack for confirm in confirms)
    return [confirm.delivery_tag for confirm in confirms]


def records(path: Path) -> Iterator[tuple[int, int, int]]:
    """(number in the body, start, end) of each record of a segment; see its format document."""
    data = path.read_bytes()
    at = 8
    while at + 24 <= len(data):
        (length,) = struct.unpack_from("<I", data, at)
        (body_length,) = struct.unpack_from("<I", data, at + 20)
        end = at + 4 + length
        (number,) = struct.unpack_from(">Q", data, end - body_length)
        yield number, at, end
        at = end


def violations_of(broker: Leveret) -> list[str]:
    """Loads the broker, stops it, and judges its recording."""
    publish_with_confirms(broker)
    root = broker.directory / "data"
    places: defaultdict[int, list[Place]] = defaultdict(list)
    segments = sorted(root.glob("vhosts/**/msgs.*"))
    assert len(segments) > 2
    for segment in segments:
        for number, start, end in records(segment):
            places[number].append((str(segment), start, end))
    for number in range(1, MESSAGES + 1):
        assert len(places[number]) == (2 if number % 3 == 0 else 1), number
    journals = [path for path in root.glob("vhosts/**/definitions*") if path.is_file()]
    assert journals
    declared = [(str(path), len(JOURNAL_MAGIC), path.stat().st_size) for path in journals]
    broker.stop()
    recording = json.loads((broker.directory / "recording").read_text())
    events: list[Event] = [tuple(row) for row in recording]  # type: ignore[misc]
    assert sum(event[0] == "confirm" for event in events) > MESSAGES // 8
    known = [str(root), str(root / "vhosts")]
    return violations(events, str(root), known, lambda number: places[number] + declared)


def test_no_confirm_leaves_before_its_messages_and_queues_are_on_disk(
    make_recorded: Callable[..., Leveret],
) -> None:
    assert violations_of(make_recorded()) == []


def test_a_broker_that_does_not_sync_is_found_out(make_recorded: Callable[..., Leveret]) -> None:
    assert len(violations_of(make_recorded("--no-sync"))) > MESSAGES


def test_a_broker_that_confirms_one_more_than_it_has_is_found_out(
    make_recorded: Callable[..., Leveret],
) -> None:
    assert violations_of(make_recorded(planted="confirm one more"))
