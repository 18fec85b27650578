"""The shapes of what the reports read and of what they make.

The feed's lines are described in `docs/formats/usage.md`. Every field that a line may carry is a
column here; one that a line leaves out is null and counts as zero.
"""

from __future__ import annotations

from pyspark.sql.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

FEED_VERSION = 1
UNREADABLE = "unreadable"

_TEXTS = ("kind", "vhost", "name", "user")
_NUMBERS = (
    "publish",
    "publish_bytes",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver_bytes",
    "redeliver",
    "ack",
    "reject",
    "confirm",
    "messages",
    "messages_peak",
    "message_bytes",
    "consumers",
    "publish_in",
    "publish_out",
    "recv_oct",
    "send_oct",
    "recv_cnt",
    "send_cnt",
    "connections",
)

# One line of the feed.
LINE = StructType(
    [
        StructField("v", IntegerType()),
        StructField("since", LongType()),
        StructField("until", LongType()),
        *(StructField(name, StringType()) for name in _TEXTS),
        *(StructField(name, LongType()) for name in _NUMBERS),
    ]
)

# A line as JSON is read: a line that is not JSON is kept whole in the last column.
JSON_LINE = StructType([*LINE.fields, StructField(UNREADABLE, StringType())])

# Which file a line is from, as the compacted feed's directories spell it.
PARTITIONS = ("date", "hour", "begun")
FEED = StructType(
    [
        *LINE.fields,
        StructField("date", DateType()),
        StructField("hour", IntegerType()),
        StructField("begun", LongType()),
    ]
)

# The report "queue-usage": messages and bytes per hour, vhost and queue.
QUEUE_USAGE = StructType(
    [
        StructField("hour", TimestampType()),
        StructField("vhost", StringType()),
        StructField("queue", StringType()),
        StructField("messages_in", LongType(), nullable=False),
        StructField("bytes_in", LongType(), nullable=False),
        StructField("messages_out", LongType(), nullable=False),
        StructField("bytes_out", LongType(), nullable=False),
        StructField("acknowledged", LongType(), nullable=False),
        StructField("redelivered", LongType(), nullable=False),
        StructField("messages_peak", LongType(), nullable=False),
    ]
)
