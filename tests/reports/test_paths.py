"""The table of paths against all that a running appliance writes, with every feature at work."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pika
import pytest

from broker.store.directory import paths, snapshot
from tests.appliance import Appliance
from tests.reports.asking import run_report
from tests.reports.conftest import TIMEOUT, wait_until
from tests.reports.test_end_to_end import api, publish_and_consume

pytest.importorskip("pyspark")

SELDOM = {
    "snapshot/**", "sync_failed", "incomplete_backup", "quarantine/**", "lost+found",
    "definitions_loaded", "usage/compacted/**", "usage/*.jsonl", "secrets_key", "reserve",
    "history/*",
    "vhosts/<id>/bodies/clean", "vhosts/<id>/bodies/index/**", "vhosts/<id>/bodies/index.*",
    "vhosts/<id>/bodies/bloom", "vhosts/<id>/bodies/*.tmp", "vhosts/<id>/bodies/*.toc",
    "vhosts/<id>/index/**", "objects/**", "tiers.journal", "vhosts/<id>/transient/**",
    "usage/tables/**", "vhosts/<id>/queues/<id>/offsets.<n>", "vhosts/<id>/schedule/<id>/due.<n>",
}  # fmt: skip
"""Rows of which a short run need not make a file: of faults, backups, clean stops, hours that end,
indexes that fill up, and segments that became objects. `tests/crash/test_observer.py` meets most of
them."""

SEGMENT = 2000


def found(data_dir: Path) -> dict[str, str]:
    """The files of a data directory, by their path: the pattern of their row."""
    # os.walk passes over directories that go while it walks, as Spark's do; Path.rglob does not.
    below = [Path(parent, name) for parent, _, files in os.walk(data_dir) for name in files]
    names = [str(path.relative_to(data_dir)) for path in below]
    return {name: paths.row_of(name).pattern for name in names}


def test_every_path_that_the_appliance_writes_is_in_the_table(appliance: Appliance) -> None:
    client = api(appliance)
    use_everything(appliance, client)
    assert run_report(client, "traffic", TIMEOUT)["state"] == "done"
    record = appliance.data_dir / "reports" / "traffic"
    wait_until(lambda: bool(list(record.glob("*/run.json"))), "the broker to bring the result")
    expected = {row.pattern for row in paths.PATHS} - SELDOM
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while expected - seen and time.monotonic() < deadline:
        seen |= set(found(appliance.data_dir).values())
        time.sleep(0.05)  # rooms are written by several processes, without an event
    assert expected - seen == set()


def use_everything(appliance: Appliance, client: httpx.Client) -> None:
    publish_and_consume(appliance)
    policy = {"pattern": "^orders$", "apply-to": "queues", "definition": {"history": "headers"}}
    client.put("/policies/%2F/recorded", json=policy).raise_for_status()
    shovel = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to"}
    for name, arguments in (
        ("from", {}),
        ("to", {}),
        ("unique", {"x-message-deduplication": True}),
        ("found", {"x-queue-type": "stream", "x-stream-index": "message_id"}),
        ("far", {"x-queue-type": "stream", "x-stream-tier": True,
                 "x-stream-max-segment-size-bytes": SEGMENT}),
        ("first", {}),
        ("second", {}),
    ):  # fmt: skip
        body = {"durable": True, "arguments": arguments}
        client.put(f"/queues/%2F/{name}", json=body).raise_for_status()
    value = {"value": shovel}
    client.put("/parameters/shovel/%2F/moving", json=value).raise_for_status()
    host, port = appliance.addresses["amqp"]
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        lasting = pika.BasicProperties(delivery_mode=2, message_id="m")
        channel.exchange_declare("fan", "fanout", durable=True)
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        for queue in ("first", "second"):
            channel.queue_bind(queue, "fan")
        channel.queue_declare("passing", exclusive=True)
        late = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 60_000})
        once = pika.BasicProperties(delivery_mode=2, headers={"x-deduplication-header": "1"})
        channel.basic_publish("fan", "", b"x" * 5000, lasting)
        channel.basic_publish("later", "", b"x", late)
        channel.basic_publish("", "unique", b"x", once)
        channel.basic_publish("", "passing", b"x" * 3000, lasting)
        for queue in ("from", "found", "far", "orders"):
            for _ in range(20):
                channel.basic_publish("", queue, b"x" * 500, lasting)
        channel.basic_qos(prefetch_count=10)
        for method, _, _ in channel.consume("found", arguments={"x-stream-offset": "first"}):
            channel.basic_ack(method.delivery_tag)
            break
        channel.cancel()
    assert client.get("/overview").is_success


def test_what_a_backup_leaves_out_is_local() -> None:
    for name in snapshot.LEFT_OUT:
        below = f"{name}/x" if name in ("run", snapshot.DIRECTORY) else name
        assert paths.row_of(below).kind == "local", name


@pytest.mark.parametrize("row", paths.PATHS, ids=lambda row: row.pattern)
def test_each_row_of_the_table_is_reached(row: paths.Row) -> None:
    example = row.pattern.replace("<id>", "0" * 16).replace("<n>", "0" * 10)
    example = example.replace("**", "a/b").replace("*", "a")
    assert paths.row_of(example) == row
