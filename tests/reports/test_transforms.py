"""What the reports compute, whole frames compared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.testing import assertDataFrameEqual

from management.reports import costs, folding, transforms
from management.reports.catalog import REPORTS
from management.reports.columns import IDENTITY, MERGED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUE_USAGE = (
    "hour timestamp, vhost string, queue string, messages_in long, bytes_in long,"
    " messages_out long, bytes_out long, acknowledged long, redelivered long, messages_peak long"
)


def rows(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of a table; what a row leaves out is zero. The kind is queue."""
    defaults = {"kind": "queue", "vhost": "/"} | dict.fromkeys(MERGED, 0)
    names = folding.ROW.fieldNames()
    values = [tuple((dict.fromkeys(IDENTITY, "") | defaults | row)[name] for name in names)
              for row in rows]  # fmt: skip
    return spark.createDataFrame(values, folding.ROW)


def at(hour: int, day: int = 21) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def test_it_adds_up_messages_and_bytes_per_hour_vhost_and_queue(spark: SparkSession) -> None:
    hours = rows(
        spark,
        {"name": "a", "at": at(10), "publish": 3, "publish_bytes": 48, "messages_peak": 8},
        {"name": "a", "at": at(10), "publish": 2, "publish_bytes": 32, "deliver": 4, "get": 1,
         "deliver_bytes": 60, "get_bytes": 20, "ack": 4, "redeliver": 1},
        {"name": "a", "at": at(11), "deliver_no_ack": 1, "get_no_ack": 1},
        {"name": "a", "at": at(10), "vhost": "shop", "publish": 9, "publish_bytes": 9,
         "messages_peak": 4},
        {"name": "held", "at": at(10), "messages": 50, "get_empty": 4},
        {"name": "amq.topic", "at": at(10), "kind": "exchange", "publish_in": 1000},
        {"user": "anna", "at": at(10), "kind": "user", "recv_oct": 1000},
    )  # fmt: skip
    expected = spark.createDataFrame(
        [
            (at(10), "/", "a", 5, 80, 5, 80, 4, 1, 8),
            (at(10), "shop", "a", 9, 9, 0, 0, 0, 0, 4),
            (at(11), "/", "a", 0, 0, 2, 0, 0, 0, 0),
        ],
        QUEUE_USAGE,
    )
    view = REPORTS["queue-usage"].view()
    found = transforms.traffic(hours, view, at(10), None)
    assertDataFrameEqual(found, expected, ignoreNullable=True)
    later = transforms.traffic(hours, view, at(11), at(12))
    assert [row["messages_out"] for row in later.collect()] == [2]
    assert transforms.traffic(hours, view, at(9), at(10)).collect() == []


def computed(
    name: str,
    rows: DataFrame,
    first: datetime,
    end: datetime | None = None,
    *,
    by: str = "",
    vhost: str = "",
    free: int = 0,
) -> DataFrame:
    """What a report computes, as its job asks for it."""
    report = REPORTS[name]
    return transforms.transformed(report, rows, report.view(by), first, end, free, vhost)


def result(frame: DataFrame, key: str) -> dict[str, dict[str, Any]]:
    """The rows of a result by their object's name."""
    return {row[key]: row.asDict() for row in frame.collect()}


def test_it_adds_up_traffic_by_exchange_user_and_virtual_host(spark: SparkSession) -> None:
    days = rows(
        spark,
        {"kind": "exchange", "name": "x", "at": at(0), "publish_in": 10, "publish_out": 7,
         "drop_unroutable": 2, "return_unroutable": 1},
        {"kind": "queue", "name": "q", "at": at(0), "publish": 14, "get": 3, "get_bytes": 30},
        {"kind": "user", "user": "anna", "at": at(0), "client": "pika", "publish": 10,
         "recv_oct": 900, "connection_ms": 5000},
        {"kind": "user", "user": "anna", "at": at(0), "client": "other", "recv_oct": 100},
    )  # fmt: skip
    report = REPORTS["traffic"]

    def found(by: str) -> dict[str, dict[str, Any]]:
        view = report.view(by)
        return result(transforms.traffic(days, view, at(0), None), by)

    x = found("exchange")["x"]
    assert (x["messages_in"], x["messages_out"], x["unroutable"], x["returned"]) == (10, 7, 2, 1)
    anna = found("user")["anna"]
    assert (anna["messages_in"], anna["received"], anna["connected"]) == (10, 1000, 5000)
    everything = found("vhost")["/"]
    assert (everything["messages_in"], everything["queued"]) == (10, 14)
    assert (everything["messages_out"], everything["bytes_out"]) == (3, 30)
    assert (everything["unroutable"], everything["received"]) == (3, 1000)
    assert set(found("queue")) == {"q"}


def test_it_compares_with_the_period_before(spark: SparkSession) -> None:
    days = rows(
        spark,
        {"name": "more", "at": at(0, 20), "publish": 10},
        {"name": "more", "at": at(0, 21), "publish": 15},
        {"name": "gone", "at": at(0, 20), "publish": 4},
        {"name": "new", "at": at(0, 21), "publish": 5},
        {"name": "later", "at": at(0, 22), "publish": 5},
    )
    view = REPORTS["changes"].view()
    found = result(transforms.changes(days, view, at(0, 21), at(0, 22)), "queue")
    assert {name: (row["messages_in"], row["messages_in_before"], row["change"])
            for name, row in found.items()} == {
        "more": (15, 10, 50.0), "gone": (0, 4, -100.0), "new": (5, 0, None)
    }  # fmt: skip


def test_it_tells_which_queues_are_abandoned_idle_or_growing(spark: SparkSession) -> None:
    def queue(name: str, **numbers: int) -> dict[str, Any]:
        return {"name": name, "at": at(0), "since": 0, "until": 1000, **numbers}

    days = rows(
        spark,
        queue("abandoned", publish=5, messages=5, message_bytes=50),
        queue("idle", consumers=1),
        queue("growing", publish=9, deliver=5, ack=5, messages=4, consumers=2),
        queue("draining", publish=5, deliver=9, ack=9, messages=2, consumers=2),
        queue("steady", publish=5, deliver=5, ack=5, consumers=2, dead_letter_expired=3,
              discard_maxlen=1, discard_rejected=1, messages_ms=2000),
        queue("turned", messages=7, publish=7) | {"until": 500},
        queue("turned", messages=1, deliver_no_ack=6, consumers=1) | {"until": 900},
    )  # fmt: skip
    found = result(computed("backlog", days, at(0)), "queue")
    states = {name: row["state"] for name, row in found.items()}
    assert states == {name: name for name in states} | {"turned": "growing"}
    assert (found["abandoned"]["held"], found["abandoned"]["held_bytes"]) == (5, 50)
    assert found["turned"]["held"] == 1
    assert (found["draining"]["drain"], found["growing"]["drain"]) == (500, None)
    steady = found["steady"]
    assert (steady["dead_expired"], steady["lost"], steady["mean"]) == (3, 2, 2.0)


def test_a_queue_that_went_with_its_broker_holds_nothing_and_one_that_stands_still_does(
    spark: SparkSession,
) -> None:
    """Nothing says of an exclusive queue that a broker was killed which had it."""
    hour = 3_600_000
    end = int(at(20).timestamp() * 1000)

    def queue(name: str, until: int, **numbers: int) -> dict[str, Any]:
        return {"name": name, "at": at(0), "since": until - hour, "until": until,
                "publish": 5, "messages": 5, "message_bytes": 50, **numbers}  # fmt: skip

    lines = [
        queue("gone", end - 3 * hour, consumers=1),
        queue("stands", end - hour),
        {"kind": "user", "user": "anna", "vhost": "other", "at": at(0), "until": end},
    ]
    ahead = queue("ahead", int(datetime.now(UTC).timestamp() * 1000) + 24 * hour)
    for days in (rows(spark, *lines), rows(spark, *lines, ahead)):
        found = result(computed("backlog", days, at(0), vhost="/"), "queue")
        gone, stands = found["gone"], found["stands"]
        assert (gone["held"], gone["held_bytes"], gone["consumers"]) == (0, 0, 0)
        assert (gone["messages_in"], gone["state"]) == (5, "steady")
        assert (stands["held"], stands["held_bytes"], stands["state"]) == (5, 50, "abandoned")
    assert result(computed("consumers", days, at(0)), "queue")["gone"]["state"] == "keeps up"
    # A broker that does not run writes nothing: what it held is there.
    stopped = rows(spark, *lines[:1])
    assert result(computed("backlog", stopped, at(0)), "queue")["gone"]["held"] == 5


def test_it_merges_histograms_into_percentiles(spark: SparkSession) -> None:
    days = rows(
        spark,
        {"name": "fast", "at": at(0), "latency_00": 99, "latency_01": 1, "latency_max": 1,
         "latency_ms": 1},
        {"name": "slow", "at": at(0), "latency_00": 40, "latency_ms": 0},
        {"name": "slow", "at": at(1), "latency_05": 50, "latency_47": 10, "latency_max": 20_000_000,
         "latency_ms": 200_000_400},
        {"name": "unused", "at": at(0), "publish": 1},
    )  # fmt: skip
    found = result(transforms.latency(days, REPORTS["latency"].view(), at(0), None), "queue")
    assert set(found) == {"fast", "slow"}
    fast, slow = found["fast"], found["slow"]
    assert (fast["p50"], fast["p90"], fast["p99"], fast["longest"]) == (1, 1, 1, 1)
    # Bucket 5 is 6 to 8 ms.
    assert (slow["p50"], slow["p90"], slow["p99"]) == (8, 8, 20_000_000)
    assert (slow["deliveries"], slow["mean"]) == (100, 2_000_004.0)


def test_it_draws_a_line_through_what_queues_hold_and_says_how_sure_it_is(
    spark: SparkSession,
) -> None:
    def day(name: str, number: int, held: int) -> dict[str, Any]:
        return {"name": name, "at": at(0, 1 + number), "since": 0, "until": 3_600_000,
                "message_bytes_s": held * 3600}  # fmt: skip

    noise = (900, -800, 300, -400, 700, -600, 200, -300, 500, -500)
    history = [
        *(day("straight", number, 1000 + 50 * number) for number in range(10)),
        *(day("noisy", number, 20_000 + 100 * number + noise[number]) for number in range(10)),
        *(day("shrinking", number, 1000 - 100 * number) for number in range(10)),
        *(day("new", number, 70) for number in (8, 9)),
    ]
    days = rows(spark, *history)
    found = result(computed("growth", days, at(0, 1)), "queue")
    assert set(found) == {"straight", "noisy", "shrinking"}
    straight = found["straight"]
    assert (straight["growth"], straight["growth_low"], straight["growth_high"]) == (50, 50, 50)
    assert straight["held_bytes"] == 1450
    assert (straight["expected"], straight["expected_low"]) == (2950, 2950)
    noisy = found["noisy"]
    assert noisy["growth_low"] < 100 < noisy["growth_high"]
    truth = 20_000 + 100 * 39
    assert noisy["expected_low"] < truth < noisy["expected_high"]
    assert noisy["expected_low"] < noisy["expected"] < noisy["expected_high"]
    assert (found["shrinking"]["growth"], found["shrinking"]["expected"]) == (-100, 0)
    by_vhost = result(computed("growth", days, at(0, 3), at(0, 8), by="vhost"), "vhost")
    assert (by_vhost["/"]["days"], by_vhost["/"]["held_bytes"]) == (5, 1300 + 20_800 + 400)


def test_it_forecasts_the_day_on_which_the_disk_is_full(spark: SparkSession) -> None:
    def day(number: int, held: int) -> dict[str, Any]:
        return {"name": "q", "at": at(0, 1 + number), "since": 0, "until": 3_600_000,
                "message_bytes_s": held * 3600}  # fmt: skip

    noise = (90, -80, 30, -40, 70, -60, 20, -30, 50, -50)
    growing = rows(spark, *(day(n, 1000 + 100 * n + noise[n]) for n in range(10)))
    (row,) = computed("disk", growing, at(0, 1), free=10_000).collect()
    # Least squares by hand: 96.3636 bytes a day.
    assert (row["days"], row["growth"], row["free"]) == (10, 96.4, 10_000)
    days = {name: (row[name].astimezone(UTC) - datetime.now(UTC)).total_seconds() / 86400
            for name in ("full_first", "full_at", "full_last")}  # fmt: skip
    assert abs(days["full_at"] - 10_000 / 96.3636) < 0.1
    assert days["full_first"] < days["full_at"] - 5 < days["full_last"] - 10
    level = rows(spark, *(day(n, 1000) for n in range(5)))
    (row,) = computed("disk", level, at(0, 1), free=10_000).collect()
    assert (row["full_at"], row["full_first"], row["full_last"]) == (None, None, None)


def test_a_queue_that_lived_for_a_part_of_the_day_held_for_that_part_only(
    spark: SparkSession,
) -> None:
    """Each day ten jobs, one after another, hold 1,000 bytes for an hour in queues of their own."""
    hour = 3_600_000
    lines: list[dict[str, Any]] = []
    for number in range(1, 6):
        start = int(at(0, number).timestamp() * 1000)
        # A user is there all day long; the users of another virtual host are as good.
        lines.append({"kind": "user", "vhost": "other", "user": "anna", "at": at(0, number),
                      "since": start, "until": start + 24 * hour})  # fmt: skip
        lines += [
            {"name": f"job.{number}.{job}", "at": at(0, number), "since": start + job * hour,
             "until": start + (job + 1) * hour, "message_bytes_s": 3600 * 1000}
            for job in range(10)
        ]  # fmt: skip
    days = rows(spark, *lines)
    (row,) = computed("growth", days, at(0, 1), by="vhost", vhost="/").collect()
    assert (row["vhost"], row["held_bytes"], row["growth"]) == ("/", 417, 0)
    (row,) = computed("disk", days, at(0, 1), free=10**6).collect()
    assert (row["held_bytes"], row["growth"], row["full_at"]) == (417, 0, None)


def test_on_a_day_without_a_row_a_queue_held_nothing(spark: SparkSession) -> None:
    """Least squares by hand, and with rows of zeros in the place of those that are missing."""

    def day(name: str, number: int, held: int) -> dict[str, Any]:
        return {
            "name": name,
            "at": at(0, number),
            "until": 3_600_000,
            "message_bytes_s": held * 3600,
        }

    held = {2: 500, 4: 300, 5: 900, 8: 100}
    lines = [
        *(day("every day", number, 10) for number in range(1, 11)),
        *(day("some days", number, count) for number, count in held.items()),
        *(day("zeros", number, held.get(number, 0)) for number in range(2, 11)),
        # A day that has just begun, of which standing queues are not written yet.
        {"kind": "user", "user": "anna", "at": at(0, 11), "until": 20_000},
    ]
    found = result(computed("growth", rows(spark, *lines), at(0, 1)), "queue")
    assert found["some days"] == found["zeros"] | {"queue": "some days"}
    assert (found["some days"]["days"], found["some days"]["held_bytes"]) == (9, 0)
    # Days 1 to 9 around their mean of 5, what was held around its mean of 200.
    assert found["some days"]["growth"] == round((-4 * 500 - 2 * 300 - 900 + 2 * 100) / 60, 1)
    assert found["some days"]["growth_low"] < found["some days"]["growth"]


def test_every_report_gives_the_columns_of_each_of_its_views(spark: SparkSession) -> None:
    none = rows(spark)
    for report in REPORTS.values():
        for view in report.views:
            if report.charges:
                frame = costs.statement(costs.priced(none, view, []), None, view)
            else:
                frame = transforms.transformed(report, none, view, at(0), None)
            assert set(view.names) <= set(frame.columns), (report.name, view.name)
            assert {"vhost", view.search} <= set(view.names)
            assert {name.removeprefix("-") for name in view.order} <= set(view.names)
