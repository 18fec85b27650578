"""Random traffic of every kind beside a ledger that its clients keep: the feed has the same sums.

The ledger counts what clients did and saw, by the rules of AMQP and of the queues' arguments; it
never asks the broker for a number. Outside of marked gaps every sum is exact, inside of one it is
never above the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from broker.features.usage import records
from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.reports.conftest import wait_until
from tests.reports.feeds import lines_of
from tests.usage.traffic import Ledger, Sums, Traffic

Make = Callable[..., Appliance]

# Columns that no client can know: octets, times.
UNKNOWN = {"recv_oct", "send_oct", "recv_cnt", "send_cnt"}
COUNTED = {
    kind: [
        column.name
        for column in records.columns_of(kind)
        if column.merge == records.SUM
        and column.unit in ("messages", "bytes", "gets")
        and not column.name.startswith("latency")
        and column.name not in UNKNOWN
    ]
    for kind in ("queue", "exchange", "user")
}


def fed(lines: list[dict[str, Any]]) -> dict[str, Sums]:
    """The feed's sums by kind; those of `connection` under their user."""
    found: dict[str, Sums] = {kind: defaultdict(Counter) for kind in records.IDENTITY}
    for line in lines:
        kind = line["kind"]
        if kind not in found:
            continue
        identity = (
            (kind, line["name"])
            if kind in ("queue", "exchange")
            else ("user", line["user"], line["client"])
        )
        for column in records.columns_of(kind):
            if column.merge == records.SUM:
                found[kind][identity][column.name] += line.get(column.name, 0)
    return found


def compare(ledger: Ledger, lines: list[dict[str, Any]]) -> int:
    """Every counted column of everything that the ledger knows; how many were compared, and how
    many of them are not zero."""
    found = fed(lines)
    wrong = {}
    compared = 0
    for identity, sums in ledger.sums.items():
        kinds = ("user", "connection") if identity[0] == "user" else (identity[0],)
        for kind in kinds:
            for column in COUNTED[identity[0]]:
                told = found[kind][identity][column]
                compared += bool(sums[column])
                if told != sums[column]:
                    wrong[kind, identity[1:], column] = (told, sums[column])
    assert not wrong, "\n".join(
        f"{key}: the feed has {told}, the clients {truth}" for key, (told, truth) in wrong.items()
    )
    return compared


def settled_lines(broker: Appliance) -> list[dict[str, Any]]:
    """The feed's lines, once everything until now is in it."""
    usage = broker.data_dir / "usage"
    now = time.time_ns() // 1_000_000

    def is_covered() -> bool:
        return any(line.get("kind") == "round" and line["since"] > now for line in lines_of(usage))

    wait_until(is_covered, "a round of the feed")
    return lines_of(usage)


def test_every_sum_is_that_of_the_clients_and_a_kill_loses_only_what_is_marked(
    make_broker: Make,
) -> None:
    broker = make_broker(usage_interval=1)
    usage = broker.data_dir / "usage"

    # 1: all kinds of traffic, and everything is in the feed before the process is killed.
    first = Ledger()
    traffic = Traffic(broker, first, "first", seed=1)
    traffic.run(25)
    lines = settled_lines(broker)
    assert compare(first, lines) >= 72
    check_what_is_held(first, lines)
    check_latencies(lines)
    traffic.close()
    lines_before = len(settled_lines(broker))
    broker.kill()
    assert compare(first, lines_of(usage)) >= 72

    # 2: the same, and the process is killed in the middle of it, when some of it is in the feed.
    broker.start()
    second = Ledger()
    traffic = Traffic(broker, second, "second", seed=2)

    def is_begun() -> bool:
        return any(line.get("run") == 2 and line.get("publish") for line in lines_of(usage))

    def kill() -> None:
        try:
            wait_until(is_begun, "a round with traffic")
        finally:
            broker.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with contextlib.suppress(pika.exceptions.AMQPError, OSError):
        while True:
            traffic.run(10)
    killer.join()
    check_bounds(second, lines_of(usage))

    # 3: what comes behind the gap is exact again, and a clean stop leaves no gap.
    broker.start()
    third = Ledger()
    traffic = Traffic(broker, third, "third", seed=3)
    traffic.run(10)
    traffic.close()
    assert broker.stop() == 0
    lines = lines_of(usage)
    assert compare(first, [line for line in lines if line.get("run") == 1]) >= 72
    assert compare(third, [line for line in lines if line.get("run") == 3]) >= 72
    gaps = [line for line in lines if line["kind"] == "gap"]
    starts = {line["run"]: line["since"] for line in lines if line["kind"] == "start"}
    assert [gap["run"] for gap in gaps] == [2, 3], "one for each kill"
    for gap in gaps:
        rounds = [
            line["until"]
            for line in lines
            if line["kind"] == "round" and line["run"] == gap["run"] - 1
        ]
        assert (gap["since"], gap["until"]) == (max(rounds), starts[gap["run"]])
    assert lines[-1]["kind"] == "stop"
    assert lines_before < len(lines)


def check_bounds(ledger: Ledger, lines: list[dict[str, Any]]) -> None:
    """Where the process was killed, no sum is above what the clients asked for."""
    found = fed([line for line in lines if line.get("run") == 2])
    total: Counter[str] = Counter()
    for identity, sums in ledger.sums.items():
        for column in ("publish", "publish_bytes", "publish_in", "publish_in_bytes"):
            told = found[identity[0]][identity][column]
            assert told <= sums[column], (identity, column)
            total[column] += told
    assert total["publish"] > 0, "some rounds were written before the kill"


def check_what_is_held(ledger: Ledger, lines: list[dict[str, Any]]) -> None:
    """What each queue's newest line says that it holds, and what may be true of its integrals."""
    newest: dict[str, dict[str, Any]] = {}
    peaks: Counter[str] = Counter()
    integrals: Counter[str] = Counter()
    spans: Counter[str] = Counter()
    for line in lines:
        if line["kind"] == "queue":
            name = line["name"]
            newest[name] = line
            peaks[name] = max(peaks[name], line.get("messages_peak", 0))
            integrals[name] += line.get("messages_ms", 0)
            spans[name] += line["until"] - line["since"]
    for name, held in ledger.held.items():
        assert newest[name].get("messages", 0) == held, name
        assert peaks[name] >= held
        assert 0 <= integrals[name] <= peaks[name] * spans[name]
        if held:
            assert integrals[name] > 0, name


def check_latencies(lines: list[dict[str, Any]]) -> None:
    """Each first delivery is in one bucket."""
    for (_, name), sums in fed(lines)["queue"].items():
        if name.endswith(".log"):
            continue
        out = sum(sums[how] for how in ("deliver", "deliver_no_ack", "get", "get_no_ack"))
        buckets = sum(
            sums[records.latency_column(bucket)] for bucket in range(records.LATENCY_BUCKETS)
        )
        assert buckets == out - sums["redeliver"], name


def test_a_queue_that_waited_tells_how_long(make_broker: Make, tmp_path: Path) -> None:
    broker = make_broker(usage_interval=1)
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("late", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", "late", b"first", pika.BasicProperties(delivery_mode=2))
        begun = settled_lines(broker)[-1]["until"]
        channel.basic_publish("", "late", b"second", pika.BasicProperties(delivery_mode=2))
        assert channel.basic_get("late", auto_ack=True)[2] == b"first"
        lines = [line for line in settled_lines(broker) if line["kind"] == "queue"]
    assert lines[0]["oldest_ms"] > 0 and lines[0]["messages"] == 1
    assert lines[-1]["messages"] == 1
    assert lines[-1]["latency_max"] >= begun - lines[0]["until"]
    assert lines[-1]["latency_ms"] >= lines[-1]["latency_max"]


def test_what_a_user_does_over_the_http_api_is_in_the_lines_of_the_user(make_broker: Make) -> None:
    broker = make_broker(usage_interval=1)
    exchange = {"vhost": "/", "name": "amq.default"}
    queue = {"vhost": "/", "name": "seen", "as_user": "guest"}

    async def use() -> list[Any]:
        control = BrokerClient(broker.control_socket)
        try:
            full = {"x-max-length": 2, "x-overflow": "reject-publish"}
            await control.call("queue.declare", durable=True, arguments=full, **queue)
            for key, body in (("seen", b"12345"), ("seen", b"123"), ("seen", b"1"), ("no", b"12")):
                is_full = pytest.raises(BrokerError, match="Check queue limits")
                with is_full if body == b"1" else contextlib.nullcontext():
                    await control.call(
                        "exchange.publish",
                        routing_key=key,
                        payload=body,
                        as_user="guest",
                        **exchange,
                    )
            took = []
            for mode in ("ack_requeue_true", "ack_requeue_false", "reject_requeue_false"):
                took += await control.call("queue.get", ackmode=mode, **queue)
            return took + await control.call("queue.get", **queue)
        finally:
            await control.close()

    took = asyncio.run(use())
    assert [(one["payload_bytes"], one["redelivered"]) for one in took] == [
        (5, False), (5, True), (3, False)
    ]  # fmt: skip
    lines = settled_lines(broker)
    sums = fed(lines)
    assert sums["user"]["user", "guest", "HTTP API"] == Counter(
        publish=4, publish_bytes=11, routed=3, routed_bytes=9, refused=1, refused_bytes=1,
        drop_unroutable=1, drop_unroutable_bytes=2, get=3, get_bytes=13, redeliver=1,
        redeliver_bytes=5, ack=1, ack_bytes=5, reject=1, reject_bytes=3, get_empty=1,
    )  # fmt: skip
    for column in ("get", "get_bytes", "redeliver", "ack", "ack_bytes", "reject_bytes", "refused"):
        assert (
            sums["queue"]["queue", "seen"][column]
            == sums["user"]["user", "guest", "HTTP API"][column]
        )
    assert not [line for line in lines if line["kind"] == "connection"]
