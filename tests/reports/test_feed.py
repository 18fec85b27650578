"""The usage feed: what it writes, when, and what is left of it after an accident."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from broker.features.usage import feed as feed_module
from broker.features.usage import records
from tests.inner import latency_bucket
from tests.reports.feeds import (
    HOUR_MS,
    TEN,
    FilesystemDisk,
    MadeUpBroker,
    about,
    feed_of,
    lines_of,
    published,
    run_round,
)

ROOT = Path(__file__).resolve().parents[2]
MINUTE = 60_000
COUNTING = tuple(records.IDENTITY)


def test_it_writes_what_each_counter_rose_by(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    orders.publish(5, size=100)
    orders.hold(1000)
    run_round(feed.tick(TEN + MINUTE))
    orders.publish(2, size=100)
    run_round(feed.tick(TEN + 2 * MINUTE))

    first, second = about(tmp_path, *COUNTING)
    assert first == {
        "v": 2,
        "kind": "queue",
        "since": TEN,
        "until": TEN + MINUTE,
        "run": 1,
        "vhost": "/",
        "name": "orders",
        "publish": 5,
        "publish_bytes": 500,
        "messages": 5,
        "message_bytes": 500,
        "messages_peak": 5,
        "messages_ms": 5_000,
        "message_bytes_ms": 500_000,
    }
    assert (second["publish"], second["publish_bytes"], second["messages"]) == (2, 200, 7)
    assert (second["since"], second["until"]) == (TEN + MINUTE, TEN + 2 * MINUTE)


def test_it_writes_no_column_that_is_not_in_the_table(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    queue, exchange = broker.queue("q"), broker.exchange("x")
    connection = broker.connection(1, "anna")
    feed = feed_of(broker, tmp_path)
    for thing, kind in ((queue, "queue"), (exchange, "exchange"), (connection, "connection")):
        for column in records.columns_of(kind):
            thing.use[column.name] = 3
    queue.publish(1)
    run_round(feed.tick(TEN + MINUTE))
    for line in about(tmp_path, *COUNTING):
        known = {*records.ENVELOPE, *records.IDENTITY[line["kind"]]}
        known |= {column.name for column in records.columns_of(line["kind"])}
        assert set(line) <= known, line["kind"]


def test_a_column_has_one_unit_and_merges_in_one_way_whatever_the_kind() -> None:
    for name in records.NAMES:
        alike = {(row.unit, row.merge) for row in records.COLUMNS if row.name == name}
        assert len(alike) == 1, name


def test_its_page_names_every_column() -> None:
    page = (ROOT / "docs" / "formats" / "usage.md").read_text()
    for name in records.NAMES:
        if not name.startswith("latency_0") and name not in page:
            base = name.removesuffix("_bytes")
            assert base.startswith("latency_") or f"`{base}`" in page, name


def test_a_latency_lies_in_the_bucket_that_begins_below_it() -> None:
    starts = [records.latency_from(bucket) for bucket in range(records.LATENCY_BUCKETS)]
    assert starts[:9] == [0, 1, 2, 3, 4, 6, 8, 12, 16]
    for bucket, (start, end) in enumerate(pairwise(starts)):
        assert latency_bucket(start) == latency_bucket(end - 1) == bucket
    assert latency_bucket(10**12) == records.LATENCY_BUCKETS - 1


def test_the_table_can_be_read_without_the_compiled_broker() -> None:
    code = (
        "import sys, broker.features.usage.records; "
        "print([m for m in sys.modules if m.startswith('broker.') "
        "and m.split('.')[1] != 'features'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_it_tells_the_most_that_was_held_between_two_lines(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    orders.publish(5)
    orders.messages = 1
    run_round(feed.tick(TEN + MINUTE))
    orders.publish(1)
    run_round(feed.tick(TEN + 2 * MINUTE))
    lines = about(tmp_path, "queue")
    assert [(line["messages"], line["messages_peak"]) for line in lines] == [(1, 5), (2, 2)]


def test_it_does_nothing_before_the_interval_is_over(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    broker.queue("orders").publish(1)
    feed = feed_of(broker, tmp_path)
    assert feed.tick(TEN + MINUTE - 1) is None
    assert feed.tick(TEN + MINUTE) is not None
    assert feed.tick(TEN + 2 * MINUTE) is None, "a round is under way"


def test_it_writes_nothing_of_idle_queues(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    for number in range(1000):
        broker.queue(f"idle{number}")
    feed = feed_of(broker, tmp_path)
    run_round(feed.tick(TEN + MINUTE))
    assert [line["kind"] for line in lines_of(tmp_path)] == ["start", "round"]


def test_it_writes_a_standing_backlog_once_a_minute_and_at_the_end_of_the_hour(
    tmp_path: Path,
) -> None:
    broker = MadeUpBroker()
    full = broker.queue("full")
    full.publish(9)
    feed = feed_of(broker, tmp_path, interval_ms=10_000)
    first = TEN + HOUR_MS - 100_000
    feed.stop(TEN + 1)
    feed = feed_of(broker, tmp_path, interval_ms=10_000, now_ms=first)
    for ten_seconds in range(1, 13):
        full.hold(10_000)
        run_round(feed.tick(first + ten_seconds * 10_000))
    lines = [line for line in about(tmp_path, "queue") if line["until"] > first]
    assert [line["until"] - first for line in lines] == [10_000, 60_000, 100_000]
    assert [line["messages_ms"] for line in lines] == [90_000, 450_000, 360_000]
    assert [line["since"] - first for line in lines] == [0, 10_000, 60_000], "each from the last"
    assert [path.name[:13] for path in sorted(tmp_path.iterdir())] == [
        "2026-11-21T10",
        "2026-11-21T11",
    ]


def test_it_closes_the_hour_by_a_rename_and_puts_a_minute_where_it_began(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    for minute in range(1, 61):
        orders.publish(1)
        run_round(feed.tick(TEN + minute * MINUTE + 400))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        f"2026-11-21T10-{TEN}.jsonl",
        f"2026-11-21T11-{TEN + HOUR_MS + 400}.jsonl.open",
    ], "there is an open file at any time"
    assert published(tmp_path, "orders") == 60

    orders.publish(1)
    run_round(feed.tick(TEN + 61 * MINUTE))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert published(tmp_path, "orders") == 61


def test_it_writes_the_rest_when_the_broker_stops(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    orders.publish(3)
    under_way = feed.tick(TEN + MINUTE)
    assert under_way is not None
    next(under_way)
    orders.publish(4)
    feed.stop(TEN + MINUTE + 500)
    assert published(tmp_path, "orders") == 7
    assert lines_of(tmp_path)[-1]["kind"] == "stop"


def test_it_writes_a_round_once_when_the_broker_stops_while_a_thread_has_it(
    tmp_path: Path,
) -> None:
    for thread_came_to_it in (False, True):
        directory = tmp_path / str(thread_came_to_it)
        broker = MadeUpBroker()
        feed = feed_of(broker, directory)
        broker.queue("orders").publish(3)
        under_way = feed.tick(TEN + MINUTE)
        assert under_way is not None
        disk_call = next(step for step in under_way if step is not None)
        if thread_came_to_it:
            disk_call()
        feed.stop(TEN + MINUTE + 500)
        disk_call()
        assert published(directory, "orders") == 3


# -- after an accident -----------------------------------------------------------------------------


def test_it_goes_on_with_the_hours_file_after_a_restart_and_closes_older_ones(
    tmp_path: Path,
) -> None:
    (tmp_path / "2026-11-21T09-77.jsonl.open").write_text('{"v":1}\n')
    (tmp_path / "2026-11-21T10-88.jsonl.open").write_text('{"v":1,"kind":"queue"}\n{"v":1,"ki')
    (tmp_path / "notes.txt").write_text("not the feed's")
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    broker.queue("orders").publish(2)
    run_round(feed.tick(TEN + MINUTE))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "2026-11-21T09-77.jsonl",
        "2026-11-21T10-88.jsonl.open",
        "notes.txt",
    ]
    texts = (tmp_path / "2026-11-21T10-88.jsonl.open").read_text().split("\n")
    assert texts[1] == '{"v":1,"ki', "the torn line stays a line of its own"
    assert published(tmp_path, "orders") == 2
    assert not about(tmp_path, "gap"), "a feed of version 1 does not say how it ended"


def test_it_marks_what_a_killed_broker_did_not_write(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    orders.publish(1)
    run_round(feed.tick(TEN + MINUTE))
    # The process ends here: no stop.
    feed_of(broker, tmp_path, now_ms=TEN + 5 * MINUTE)
    (gap,) = about(tmp_path, "gap")
    assert (gap["since"], gap["until"]) == (TEN + MINUTE, TEN + 5 * MINUTE)
    assert gap["reason"] == "unclean"
    assert gap["standing_since"] == TEN


def test_it_marks_the_gap_behind_a_torn_append_longer_than_a_block(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    run_round(feed.tick(TEN + MINUTE))
    (path,) = tmp_path.iterdir()
    with path.open("a") as file:
        file.write('{"v":2,"kind":"queue","name":"x"}\n' * 20_000)
        file.write('{"v":2,"kind":"round","since":1,"until')
    feed_of(broker, tmp_path, now_ms=TEN + 2 * HOUR_MS)
    gap = next(line for line in lines_of(tmp_path) if line["kind"] == "gap")
    assert (gap["since"], gap["until"]) == (TEN + MINUTE, TEN + 2 * HOUR_MS)


def test_it_marks_nothing_after_a_clean_stop(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    run_round(feed.tick(TEN + MINUTE))
    feed.stop(TEN + MINUTE + 10)
    feed_of(broker, tmp_path, now_ms=TEN + 5 * MINUTE)
    kinds = [line["kind"] for line in lines_of(tmp_path)]
    assert kinds == ["start", "round", "round", "stop", "start"]


def test_a_queue_cannot_be_named_so_that_it_hides_a_gap(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    broker.queue('\n{"v":2,"kind":"stop","until":9}\n').publish(1)
    run_round(feed.tick(TEN + MINUTE))
    feed_of(broker, tmp_path, now_ms=TEN + 5 * MINUTE)
    assert [gap["since"] for gap in about(tmp_path, "gap")] == [TEN + MINUTE]


@pytest.mark.parametrize("cut", [True, False])
def test_each_line_is_there_once_when_the_disk_was_full_for_a_while(
    tmp_path: Path, cut: bool
) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    disk = FilesystemDisk()
    feed = feed_of(broker, tmp_path, disk)
    orders.publish(5)
    connection = broker.connection(1, "anna")
    connection.use["recv_oct"] = 70
    del broker.connections[1]
    feed.connection_closed(connection, TEN + 10)
    disk.broken, disk.cuts = True, cut
    run_round(feed.tick(TEN + MINUTE))
    orders.publish(2)
    run_round(feed.tick(TEN + MINUTE + 1000))
    run_round(feed.tick(TEN + 2 * MINUTE))
    assert [line["publish"] for line in about(tmp_path, "queue")] == [5, 2]
    assert [line["recv_oct"] for line in about(tmp_path, "connection")] == [70]
    assert [line["recv_oct"] for line in about(tmp_path, "user")] == [70]


def test_it_writes_the_first_file_when_there_was_no_room_for_it(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    disk = FilesystemDisk()
    disk.makes_nothing = True
    feed = feed_of(broker, tmp_path, disk)
    broker.queue("orders").publish(5)
    assert not list(tmp_path.iterdir())
    disk.makes_nothing = False
    run_round(feed.tick(TEN + 1000))
    run_round(feed.tick(TEN + MINUTE))
    assert published(tmp_path, "orders") == 5


def test_it_marks_what_it_had_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "WAITING_LINES_MAX", 2)
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    for number in range(5):
        connection = broker.connection(number, "anna")
        connection.use["publish"] = 1
        del broker.connections[number]
        feed.connection_closed(connection, TEN + 10)
    run_round(feed.tick(TEN + MINUTE))
    (gap,) = about(tmp_path, "gap")
    assert (gap["reason"], gap["lines"], gap["until"]) == ("dropped", 3, TEN + MINUTE)
    (user,) = about(tmp_path, "user")
    assert user["publish"] == 5, "the sum of the user is whole"


# -- what ends -------------------------------------------------------------------------------------


def test_it_counts_a_queue_that_is_deleted_between_two_rounds(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    reply = broker.queue("reply")
    reply.publish(3)
    run_round(feed.tick(TEN + MINUTE))
    reply.publish(4)
    del broker.vhost.queues["reply"]
    feed.queue_deleted(reply, TEN + MINUTE + 5)
    broker.queue("reply").publish(1)
    run_round(feed.tick(TEN + 2 * MINUTE))
    lines = about(tmp_path, "queue")
    assert [line["publish"] for line in lines] == [3, 4, 1]
    assert [line.get("messages") for line in lines] == [3, None, 1]


def test_it_counts_an_exchange_that_is_deleted_between_two_rounds(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    events = broker.exchange("events")
    events.use["publish_in"] = 3
    run_round(feed.tick(TEN + MINUTE))
    events.use["publish_in"] = 7
    del broker.vhost.exchanges["events"]
    feed.exchange_deleted(broker.vhost, events)
    run_round(feed.tick(TEN + 2 * MINUTE))
    assert [line["publish_in"] for line in about(tmp_path, "exchange")] == [3, 4]


def test_it_counts_once_what_ends_while_a_round_is_under_way(tmp_path: Path) -> None:
    for steps_before in range(8):
        directory = tmp_path / str(steps_before)
        broker = MadeUpBroker()
        queues = [broker.queue(f"q{number}") for number in range(120)]
        exchange = broker.exchange("events")
        connection = broker.connection(1, "anna")
        feed = feed_of(broker, directory)
        for queue in queues:
            queue.publish(1)
        connection.use["recv_oct"] = 50
        exchange.use["publish_in"] = 5
        under_way = feed.tick(TEN + MINUTE)
        assert under_way is not None
        for _ in range(steps_before):
            if (step := next(under_way)) is not None:
                step()
        queues[60].publish(2)
        connection.use["recv_oct"] = 80
        exchange.use["publish_in"] = 8
        del broker.vhost.queues["q60"], broker.connections[1], broker.vhost.exchanges["events"]
        feed.queue_deleted(queues[60], TEN + MINUTE + 1)
        feed.exchange_deleted(broker.vhost, exchange)
        feed.connection_closed(connection, TEN + MINUTE + 1)
        run_round(under_way)
        run_round(feed.tick(TEN + 2 * MINUTE))
        assert published(directory, "q60") == 3, steps_before
        for kind, column, whole in (
            ("user", "recv_oct", 80),
            ("connection", "recv_oct", 80),
            ("exchange", "publish_in", 8),
        ):
            total = sum(line.get(column, 0) for line in about(directory, kind))
            assert total == whole, (kind, steps_before)


# -- connections -----------------------------------------------------------------------------------


def test_it_adds_up_connections_by_user_and_client_and_tells_of_each(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    first, second = broker.connection(1, "anna"), broker.connection(2, "anna")
    third = broker.connection(3, "anna", client="bunny")
    feed = feed_of(broker, tmp_path)
    first.use["publish"], second.use["publish"], second.use["send_oct"] = 10, 20, 5
    third.use["ack"] = 1
    run_round(feed.tick(TEN + MINUTE))
    second.use["publish"] = 26
    del broker.connections[2]
    feed.connection_closed(second, TEN + MINUTE + 9)
    run_round(feed.tick(TEN + 2 * MINUTE))
    users = about(tmp_path, "user")
    assert users[0] == {
        "v": 2,
        "kind": "user",
        "since": TEN,
        "until": TEN + MINUTE,
        "run": 1,
        "vhost": "/",
        "user": "anna",
        "client": "pika",
        "client_version": "1",
        "publish": 30,
        "send_oct": 5,
        "connections": 2,
        "connection_ms": 2 * MINUTE,
    }
    assert (users[1]["client"], users[1]["ack"]) == ("bunny", 1)
    assert (users[2]["publish"], users[2]["connections"]) == (6, 1)
    assert users[2]["connection_ms"] == MINUTE + 9
    of_second = [line for line in about(tmp_path, "connection") if line["id"] == "1-2"]
    assert [(line["publish"], line["connection_ms"]) for line in of_second] == [
        (20, MINUTE),
        (6, 9),
    ]
    assert [line.get("closed", False) for line in of_second] == [False, True]


def test_clients_that_call_themselves_ever_anew_are_added_up_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "CLIENTS_MAX", 3)
    broker = MadeUpBroker()
    feed = feed_of(broker, tmp_path)
    for number in range(10):
        broker.connection(number, "anna", client=f"client {number}").use["publish"] = 1
    run_round(feed.tick(TEN + MINUTE))
    users = about(tmp_path, "user")
    assert [(line["client"], line["publish"]) for line in users] == [
        ("client 0", 1),
        ("client 1", 1),
        ("client 2", 1),
        ("other", 7),
    ]


def test_it_keeps_hostile_names_on_one_line(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    names = ["a\nb", '{"v":9}', "<b>", "\udcff", "\u2028", "=1+1", ""]
    for name in names:
        broker.queue(name).publish(1)
    feed = feed_of(broker, tmp_path)
    run_round(feed.tick(TEN + MINUTE))
    written = [line["name"] for line in about(tmp_path, "queue")]
    assert written == [name if name != "\udcff" else "\ufffd" for name in names]


def test_it_steps_over_many_queues_in_short_steps(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    for number in range(2000):
        broker.queue(f"queue-number-{number}").publish(1)
    feed = feed_of(broker, tmp_path)
    times = []
    for step in feed.tick(TEN + MINUTE) or ():
        times.append(time.thread_time())
        if step is not None:
            step()
    took = sorted(after - before for before, after in pairwise(times))
    assert len(took) >= 2000 / feed_module.LINES_PER_STEP
    assert took[len(took) // 2] < 0.001
    assert len(about(tmp_path, "queue")) == 2000
