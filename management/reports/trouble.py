"""What the reports of `trouble_catalog` compute, from DataFrame to DataFrame; see `transforms`."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from .shapes import View
from .transforms import LEFT, added, keys_of, sums_of, totals, within, without_gone
from .trouble_catalog import REASONS, SLOW_WAIT_MS, STORM_LEAST


def consumers(
    rows: DataFrame, view: View, first: datetime, end: datetime | None, covered: DataFrame
) -> DataFrame:
    """Queues with consumers, or clients that took messages, and whether they keep up."""
    if view.name != "queue":
        return _clients(totals(rows, view, first, end))
    grouped = (
        within(rows, first, end)
        .where(f.col("kind") == "queue")
        .groupBy(*keys_of(view))
        .agg(
            *sums_of(view),
            f.max_by("messages", "until").alias("held"),
            f.sum(added(LEFT)).alias("left_queue"),
            f.sum("messages_ms").alias("messages_ms"),
            (f.max("until") - f.min("since")).alias("span"),
            f.max("until").alias("told"),
        )
        .where(f.col("consumers") > 0)
    )
    grouped = without_gone(grouped, covered, ("held",))
    out, left = f.col("messages_out"), f.col("left_queue")
    wait = f.when(left > 0, f.col("messages_ms") / left).cast("long")
    state = (
        f.when((f.col("held") > 0) & (out == 0), "stuck")
        .when((f.col("redelivered") >= STORM_LEAST) & (f.col("redelivered") * 2 >= out), "storm")
        .when(f.col("wait") > SLOW_WAIT_MS, "slow")
        .when((f.col("held") > 0) & (f.col("messages_in") > left), "behind")
        .otherwise("keeps up")
    )
    each = f.greatest(f.col("span"), f.lit(1)) * f.col("consumers") / 1000
    return (
        grouped.withColumn("wait", wait)
        .withColumn("state", state)
        .withColumn("pace", f.round(f.col("acknowledged") / each, 3))
        .withColumn("redelivered_share", _percent(f.col("redelivered"), out))
        .select(*view.names)
    )


def _clients(grouped: DataFrame) -> DataFrame:
    """Acks of messages that were delivered before the period can be more than its deliveries."""
    rest = f.col("to_ack") - f.col("acknowledged") - f.col("rejected")
    seconds = f.col("connected") / 1000
    pace = f.when(seconds > 0, f.round(f.col("acknowledged") / seconds, 3))
    return (
        grouped.where(f.col("messages_out") > 0)
        .withColumn("unfinished", f.greatest(rest, f.lit(0).cast("long")))
        .withColumn("unfinished_share", _percent(f.col("unfinished"), f.col("to_ack")))
        .withColumn("pace", pace)
    )


def refused(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """Publishers, exchanges or queues with messages that were returned, lost or refused."""
    names = [name for name in ("returned", "unroutable", "refused") if name in view.names]
    grouped = totals(rows, view, first, end).withColumn("failed", added(names))
    # What a queue refused is not in what it took.
    tried = f.col("messages_in") + (f.col("refused") if view.name == "queue" else 0)
    share = _percent(f.col("failed"), tried)
    return grouped.where(f.col("failed") > 0).withColumn("failed_share", share)


def dead_letters(rows: DataFrame, view: View, first: datetime, end: datetime | None) -> DataFrame:
    """One row for each object and reason for which messages became dead letters or were lost."""
    kinds = {"dead_letters": "dead_letter", "discarded": "discard"}
    by_reason = f.explode(
        f.array(*(
            f.struct(
                f.lit(reason).alias("reason"),
                *(f.col(f"{prefix}_{reason}").alias(name) for name, prefix in kinds.items()),
                f.col(f"dead_letter_{reason}_bytes").alias("dead_letter_bytes"),
                f.col(f"discard_{reason}_bytes").alias("discarded_bytes"),
                f.col("publish"),
            )
            for reason in REASONS
        ))
    )  # fmt: skip
    queues = within(rows, first, end).where(f.col("kind") == "queue")
    each = queues.select("at", *keys_of(view), by_reason.alias("one")).select(
        "at", *(name for name, _ in view.keys), "one.*"
    )
    numbers = ("dead_letters", "dead_letter_bytes", "discarded", "discarded_bytes", "publish")
    grouped = each.groupBy(*(name for name, _ in view.keys), "reason").agg(
        *(f.sum(name).alias(name) for name in numbers), f.max("at").alias(view.time)
    )
    lost = f.col("dead_letters") + f.col("discarded")
    return grouped.where(lost > 0).withColumn("share", _percent(lost, f.col("publish")))


def _percent(part: Expression, whole: Expression) -> Expression:
    return f.when(whole > 0, f.round(part * 100.0 / whole, 1))
