"""The usage feed: what it writes, when, and what is left of it after an accident."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

from tests.reports.feeds import (
    HOUR_MS,
    TEN,
    FilesystemDisk,
    MadeUpBroker,
    feed_of,
    lines_of,
    published,
    run_round,
)

MINUTE = 60_000


def test_it_writes_what_each_counter_rose_by(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    orders.publish(5, size=100)
    run_round(feed.tick(TEN + MINUTE))
    orders.publish(2, size=100)
    run_round(feed.tick(TEN + 2 * MINUTE))

    first, second = lines_of(tmp_path)
    assert first == {
        "v": 1,
        "kind": "queue",
        "since": TEN,
        "until": TEN + MINUTE,
        "vhost": "/",
        "name": "orders",
        "publish": 5,
        "publish_bytes": 500,
        "messages": 5,
        "message_bytes": 500,
        "messages_peak": 5,
    }
    assert (second["publish"], second["publish_bytes"], second["messages"]) == (2, 200, 7)
    assert (second["since"], second["until"]) == (TEN + MINUTE, TEN + 2 * MINUTE)


def test_it_tells_the_most_that_was_held_between_two_lines(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    orders.publish(5)
    orders.messages_ready = 1
    run_round(feed.tick(TEN + MINUTE))
    orders.publish(1)
    run_round(feed.tick(TEN + 2 * MINUTE))
    lines = lines_of(tmp_path)
    assert [(line["messages"], line["messages_peak"]) for line in lines] == [(1, 5), (2, 2)]


def test_it_does_nothing_before_the_minute_is_over(tmp_path: Path) -> None:
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
    assert list(tmp_path.iterdir()) == []


def test_it_repeats_a_standing_backlog_once_an_hour(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    broker.queue("full").publish(9)
    feed = feed_of(broker, tmp_path)
    for minute in range(1, 122):
        run_round(feed.tick(TEN + minute * MINUTE))
    lines = lines_of(tmp_path)
    assert [line["since"] for line in lines] == [TEN, TEN + HOUR_MS, TEN + 2 * HOUR_MS]
    assert [line["messages"] for line in lines] == [9, 9, 9]


def test_it_closes_the_hour_by_a_rename_and_puts_a_minute_where_it_began(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    feed = feed_of(broker, tmp_path)
    for minute in range(1, 61):
        orders.publish(1)
        run_round(feed.tick(TEN + minute * MINUTE + 400))
    names = [path.name for path in tmp_path.iterdir()]
    assert names == [f"2026-11-21T10-{TEN + MINUTE + 400}.jsonl"]
    assert published(tmp_path, "orders") == 60

    orders.publish(1)
    run_round(feed.tick(TEN + 61 * MINUTE))
    assert sorted(path.name for path in tmp_path.iterdir())[1:] == [
        f"2026-11-21T11-{TEN + 61 * MINUTE}.jsonl.open"
    ]


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


def test_it_loses_nothing_when_the_disk_was_full_for_a_while(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    orders = broker.queue("orders")
    disk = FilesystemDisk()
    feed = feed_of(broker, tmp_path, disk)
    orders.publish(5)
    connection = broker.connection(1, "anna")
    connection.recv_oct = 70
    del broker.connections[1]
    feed.connection_closed(connection, TEN + 10)
    disk.broken = True
    run_round(feed.tick(TEN + MINUTE))
    orders.publish(2)
    run_round(feed.tick(TEN + 2 * MINUTE))
    whole = [line for line in lines_of(tmp_path) if line["until"] == TEN + 2 * MINUTE]
    assert [line["publish"] for line in whole] == [7]
    closed = [line for line in lines_of(tmp_path) if line["kind"] == "connection"]
    assert closed[-1]["recv_oct"] == 70


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
    assert [line["publish"] for line in lines_of(tmp_path)] == [3, 4, 1]


def test_it_counts_once_what_ends_while_a_round_is_under_way(tmp_path: Path) -> None:
    for steps_before in range(6):
        directory = tmp_path / str(steps_before)
        broker = MadeUpBroker()
        queues = [broker.queue(f"q{number}") for number in range(120)]
        connection = broker.connection(1, "anna")
        feed = feed_of(broker, directory)
        for queue in queues:
            queue.publish(1)
        connection.recv_oct = 50
        under_way = feed.tick(TEN + MINUTE)
        assert under_way is not None
        for _ in range(steps_before):
            if (step := next(under_way)) is not None:
                step()
        queues[60].publish(2)
        connection.recv_oct = 80
        del broker.vhost.queues["q60"], broker.connections[1]
        feed.queue_deleted(queues[60], TEN + MINUTE + 1)
        feed.connection_closed(connection, TEN + MINUTE + 1)
        run_round(under_way)
        run_round(feed.tick(TEN + 2 * MINUTE))
        assert published(directory, "q60") == 3, steps_before
        users = [line for line in lines_of(directory) if line["kind"] == "user"]
        assert sum(line.get("recv_oct", 0) for line in users) == 80, steps_before


def test_it_adds_up_connections_per_user_and_tells_of_each_that_closes(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    first, second = broker.connection(1, "anna"), broker.connection(2, "anna")
    feed = feed_of(broker, tmp_path)
    first.recv_oct, second.recv_oct, second.send_oct = 10, 20, 5
    run_round(feed.tick(TEN + MINUTE))
    second.recv_oct = 26
    del broker.connections[2]
    feed.connection_closed(second, TEN + MINUTE + 9)
    run_round(feed.tick(TEN + 2 * MINUTE))
    lines = lines_of(tmp_path)
    assert lines[0] == {
        "v": 1,
        "kind": "user",
        "since": TEN,
        "until": TEN + MINUTE,
        "user": "anna",
        "vhost": "/",
        "recv_oct": 30,
        "send_oct": 5,
        "connections": 2,
    }
    users = [line for line in lines[1:] if line["kind"] == "user"]
    assert sum(line.get("recv_oct", 0) for line in users) == 6
    closed = [line for line in lines if line["kind"] == "connection"]
    assert [(line["name"], line["recv_oct"], line["until"]) for line in closed] == [
        (second.name, 26, TEN + MINUTE + 9)
    ]


def test_it_keeps_hostile_names_on_one_line(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    names = ["a\nb", '{"v":9}', "<b>", "\udcff", "\u2028", "=1+1", ""]
    for name in names:
        broker.queue(name).publish(1)
    feed = feed_of(broker, tmp_path)
    run_round(feed.tick(TEN + MINUTE))
    written = [line["name"] for line in lines_of(tmp_path)]
    assert written == [name if name != "\udcff" else "\ufffd" for name in names]


def test_it_steps_over_many_queues_in_short_steps(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    for number in range(2000):
        broker.queue(f"queue-number-{number}").publish(1)
    feed = feed_of(broker, tmp_path)
    times = []
    for step in feed.tick(TEN + MINUTE) or ():
        times.append(time.perf_counter())
        if step is not None:
            step()
    took = sorted(after - before for before, after in pairwise(times))
    assert len(took) >= 2000 / 50
    assert took[len(took) // 2] < 0.001
    assert len(lines_of(tmp_path)) == 2000
