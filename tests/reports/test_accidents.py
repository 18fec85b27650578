"""kill -9 of the broker and of the supervisor: what the feed keeps, what is left running."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from management.reports import client
from management.reports.runs import Runs
from tests.appliance import Appliance
from tests.reports.conftest import wait_until
from tests.reports.feeds import published
from tests.reports.test_process import is_spark, lives

Make = Callable[..., Appliance]


def publish(broker: Appliance, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        for _ in range(count):
            channel.basic_publish("", "orders", b"x")


def feed_lines(usage: Path) -> list[str]:
    texts = [path.read_text() for path in usage.glob("*.jsonl*")]
    return [line for text in texts for line in text.split("\n") if line]


def test_it_keeps_what_the_feed_had_written_when_the_broker_is_killed(make_broker: Make) -> None:
    broker = make_broker(usage_interval=1)
    usage = broker.data_dir / "usage"
    publish(broker, 30)
    wait_until(lambda: published(usage, "orders") == 30, "the feed to be written")
    broker.kill()
    for path in usage.glob("*.open"):
        with path.open("a") as file:
            file.write('{"v":1,"kind":"queue","publish":9')
    broker.start()
    publish(broker, 12)
    wait_until(lambda: published(usage, "orders") == 42, "the feed to be written")
    assert broker.stop() == 0
    unreadable = []
    for line in feed_lines(usage):
        try:
            json.loads(line)
        except ValueError:
            unreadable.append(line)
    assert unreadable == ['{"v":1,"kind":"queue","publish":9']


def test_it_writes_the_last_counts_when_the_broker_stops(make_broker: Make) -> None:
    broker = make_broker(usage_interval=3600)
    publish(broker, 25)
    assert broker.stop() == 0
    assert published(broker.data_dir / "usage", "orders") == 25
    kinds = {json.loads(line)["kind"] for line in feed_lines(broker.data_dir / "usage")}
    assert {"queue", "exchange", "user", "connection"} <= kinds


def test_it_leaves_no_spark_behind_when_the_supervisor_is_killed(make_leveret: Make) -> None:
    pytest.importorskip("pyspark")
    leveret = make_leveret()
    # The appliance is ready before its reports process is.
    wait_until(lambda: answers(leveret), "the reports process to answer")
    run_id = client.run(leveret.data_dir, "queue-usage", None)
    wait_until(lambda: bool(spark_of(leveret)), "the JVM to start")
    processes = spark_of(leveret)
    leveret.kill()
    wait_until(lambda: not any(lives(pid) for pid in processes), "Spark to end")
    assert Runs(leveret.data_dir / "reports").read("queue-usage", run_id).state != "done"


def answers(leveret: Appliance) -> bool:
    try:
        return bool(client.status(leveret.data_dir).next_at)
    except client.ReportsUnavailable:
        return False


def spark_of(leveret: Appliance) -> list[int]:
    """The JVMs whose command line names this appliance's data directory."""
    directory = str(leveret.data_dir).encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and is_spark(int(place.name)):
            try:
                if directory in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
            except OSError:
                continue
    return found
