"""A disk that does not answer stops confirms and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server.stall import Stall
from broker.store.commit.failed_reads import FailedReads
from tests.amqp import raw
from tests.amqp.raw import Client
from tests.conftest import Make
from tests.store.stalled_disk import log_of, nothing_comes, stall, stallable, states, wait_for


def test_a_stalled_disk_stops_confirms_but_not_heartbeats_or_consumers(tmp_path: Path) -> None:
    broker = stallable(tmp_path)
    try:
        stall(tmp_path, broker, 1.0)
    finally:
        broker.stop()


def test_a_commit_and_the_confirm_of_a_delayed_message_wait_for_the_disk(tmp_path: Path) -> None:
    broker = stallable(tmp_path)
    address = ("127.0.0.1", broker.port)
    try:
        with Client.open(address) as committer, Client.open(address) as later:
            committer.call(1, "queue.declare", queue="q", durable=True)
            committer.call(1, "tx.select")
            type_ = {"x-delayed-type": "fanout"}
            later.call(
                1,
                "exchange.declare",
                exchange="later",
                type="x-delayed-message",
                durable=True,
                arguments=type_,
            )
            later.call(1, "confirm.select")
            assert broker.server is not None
            os.kill(broker.server.pid, signal.SIGUSR1)
            wait_for((tmp_path / "data/run/stall-set").exists)
            for number in range(3):
                committer.publish(1, "", "q", b"%d" % number, delivery_mode=2)
            committer.send_method(1, "tx.commit")
            later.publish(1, "later", "", b"x", delivery_mode=2, headers={"x-delay": 60_000})
            wait_for(lambda: "stalled disk: a sync has waited" in log_of(tmp_path))
            assert nothing_comes(committer), "committed while the disk did not answer"
            assert nothing_comes(later), "confirmed while the disk did not answer"
            os.kill(broker.server.pid, signal.SIGUSR1)
            committer.expect("tx.commit-ok", 1)
            later.expect("basic.ack", 1)
            committer.call(1, "basic.consume", queue="q", no_ack=True)
            got = committer.expect_messages(3, 1)
            assert [message.body for message in got] == [b"0", b"1", b"2"]
    finally:
        broker.stop()


def sent_for_ever(client: Client, data: bytes) -> None:
    """Until the connection ends."""
    with contextlib.suppress(OSError):
        while True:
            client.socket.sendall(data)


def test_publishers_of_few_messages_are_read_while_another_fills_the_memory(tmp_path: Path) -> None:
    broker = stallable(tmp_path, "--tail-memory=1MiB")
    address = ("127.0.0.1", broker.port)
    try:
        with Client.open(address) as filling, Client.open(address) as few:
            filling.call(1, "queue.declare", queue="filled", durable=True)
            filling.call(1, "confirm.select")
            few.call(1, "queue.declare", queue="few")
            assert broker.server is not None
            os.kill(broker.server.pid, signal.SIGUSR1)
            wait_for((tmp_path / "data/run/stall-set").exists)
            filling.publish(1, "", "filled", b"it waits for a sync", delivery_mode=2)
            wait_for(lambda: "stalled disk: a sync has waited" in log_of(tmp_path))
            data = raw.publish(1, "", "filled", bytes(1000)) * 1000
            threading.Thread(target=sent_for_ever, args=(filling, data), daemon=True).start()
            wait_for(lambda: "flow" in states(tmp_path))  # it is not read any further
            for number in range(5):
                few.publish(1, "", "few", b"%d" % number)
                got = few.get(1, "few", no_ack=True)
                assert got is not None
                assert got.body == b"%d" % number
            os.kill(broker.server.pid, signal.SIGUSR1)
    finally:
        broker.stop()


def test_it_says_once_that_the_disk_stalls_and_once_that_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Any] = []
    broker = SimpleNamespace(
        config=SimpleNamespace(disk_stall_after=5.0),
        emit=lambda event, data: events.append((event, data["name"])),
        persister=SimpleNamespace(failed_reads=FailedReads()),
    )
    watched = Stall(broker)  # type: ignore[arg-type]
    for waited in (0.0, 4.9, 5.0, 6.0, 7.5, 0.2, 0.0):
        watched.judge(waited)
    assert events == [("alarm.set", "stalled disk"), ("alarm.cleared", "stalled disk")]
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "stalled disk: a sync has wait",
        "the disk answers again after ",
    ]
    assert watched.longest_s == 7.5
    assert watched.rows() == []


@pytest.mark.parametrize("value", ["soon", "0", "-1"])
def test_it_refuses_a_stall_that_is_no_time(make_broker: Make, value: str) -> None:
    broker = make_broker(start=False, disk_stall_after=value)
    broker.start(wait=False)
    assert broker.wait() == 78
