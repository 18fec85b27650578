"""What is counted of each kind of object, under RabbitMQ's names."""

from __future__ import annotations

QUEUE_COUNTERS = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
    "confirm",
)
QUEUE_LEVELS = ("messages_ready", "messages_unacknowledged", "message_bytes")
EXCHANGE_COUNTERS = ("publish_in", "publish_out")
CHANNEL_COUNTERS = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
)
CONNECTION_COUNTERS = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")

KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "queue": (QUEUE_COUNTERS, QUEUE_LEVELS),
    "exchange": (EXCHANGE_COUNTERS, ()),
    "channel": (CHANNEL_COUNTERS, ()),
    "connection": (CONNECTION_COUNTERS, ()),
}
"""Counters and levels of each kind of object, in the order of a row."""

DELIVERING = ("deliver", "deliver_no_ack", "get", "get_no_ack")
