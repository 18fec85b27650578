"""The lines of the usage feed: which kinds there are, and the columns each may carry.

`COLUMNS` is the one table of them: the feed writes by it, the reports read by it, and
`docs/formats/usage.md` is the same in prose. A column is added by a row here; a change that would
mislead older readers raises SCHEMA_VERSION. Nothing of the broker is imported here, so that any
process can read the table.
"""

from __future__ import annotations

from typing import NamedTuple

SCHEMA_VERSION = 2

SUM, MAX, LAST = "sum", "max", "last"

IDENTITY: dict[str, tuple[str, ...]] = {
    "queue": ("vhost", "name"),
    "exchange": ("vhost", "name"),
    "user": ("vhost", "user", "client", "client_version"),
    "connection": ("vhost", "user", "client", "client_version", "name", "id"),
}
"""The kinds of lines that count something, and the texts that say of what. Lines of one kind with
the same texts can be merged. Lines of `connection` hold the same counts as those of `user`, told
apart by connection: add up one kind or the other."""

EVENTS = ("start", "round", "stop", "gap")
"""The kinds of lines that tell about the feed itself."""

ENVELOPE = ("v", "kind", "since", "until", "run")
"""What every line has. `since` and `until`: UTC milliseconds, `until` not included; `run`: the
number of the broker's start."""

# Why a message left a queue without an ack: RabbitMQ's words, `-` as `_`.
REASONS = ("rejected", "expired", "maxlen", "delivery_limit")

LATENCY_BUCKETS = 48


class Column(NamedTuple):
    """A number of a line. `merge`: how numbers of several lines become one (SUM, MAX, or LAST: that
    of the line with the greatest `until`). A column that a line leaves out is 0. `since`: the first
    version of the format that has it."""

    name: str
    unit: str
    merge: str
    kinds: tuple[str, ...]
    meaning: str
    since: int = 2


_QUEUE = ("queue",)
_EXCHANGE = ("exchange",)
_CLIENT = ("user", "connection")


def _counted(
    name: str, kinds: tuple[str, ...], meaning: str, since: int = 2, bytes_since: int = 2
) -> tuple[Column, Column]:
    """A count of messages and the bytes of their bodies."""
    return (
        Column(name, "messages", SUM, kinds, meaning, since),
        Column(f"{name}_bytes", "bytes", SUM, kinds, f"bodies of `{name}`", bytes_since),
    )


def latency_column(bucket: int) -> str:
    """The name of a latency bucket's column."""
    return f"latency_{bucket:02d}"


def latency_from(bucket: int) -> int:
    """The least latency of a bucket, ms; it ends before that of the next one. Two buckets for each
    doubling from 2 ms on, as in `broker.queues.latencies`."""
    if bucket < 2:
        return bucket
    return (2 + bucket % 2) << (bucket // 2 - 1)


COLUMNS: tuple[Column, ...] = (
    # -- into queues, out of them ----------------------------------------------------------------
    *_counted("publish", _QUEUE, "messages that the queue took, dead letters included", 1, 1),
    *_counted("publish", _CLIENT, "messages published, whatever became of them"),
    Column("confirm", "messages", SUM, _QUEUE, "of `publish`: their publishers want confirms", 1),
    Column("confirm", "messages", SUM, _CLIENT, "publishes confirmed to the client"),
    *_counted("deliver", _QUEUE, "sent to consumers that ack", 1, 1),
    *_counted("deliver_no_ack", _QUEUE, "sent to consumers that do not ack", 1),
    *_counted("get", _QUEUE, "taken by basic.get with ack", 1),
    *_counted("get_no_ack", _QUEUE, "taken by basic.get without ack", 1),
    Column("get_empty", "gets", SUM, _QUEUE, "gets that found nothing", 1),
    *_counted("redeliver", _QUEUE, "of the deliveries and gets: not the message's first", 1),
    *_counted("ack", _QUEUE, "acknowledged", 1),
    *_counted("reject", _QUEUE, "rejected or nacked without requeue", 1),
    *_counted("deliver", _CLIENT, "sent to consumers that ack"),
    *_counted("deliver_no_ack", _CLIENT, "sent to consumers that do not ack"),
    *_counted("get", _CLIENT, "taken by basic.get with ack"),
    *_counted("get_no_ack", _CLIENT, "taken by basic.get without ack"),
    Column("get_empty", "gets", SUM, _CLIENT, "gets that found nothing"),
    *_counted("redeliver", _CLIENT, "of the deliveries and gets: not the message's first"),
    *_counted("ack", _CLIENT, "acknowledged"),
    *_counted("reject", _CLIENT, "rejected or nacked without requeue"),
    # -- routing ---------------------------------------------------------------------------------
    *_counted("publish_in", _EXCHANGE, "messages published to the exchange", 1),
    *_counted("publish_out", _EXCHANGE, "of `publish_in`: messages with a queue to go to", 1),
    *_counted("routed", _CLIENT, "of `publish`: messages with a queue to go to"),
    *_counted("return_unroutable", (*_EXCHANGE, *_CLIENT), "mandatory, without a queue: returned"),
    *_counted("drop_unroutable", (*_EXCHANGE, *_CLIENT), "without a queue and not mandatory: gone"),
    *_counted("refused", _QUEUE, "publishes that the queue did not take because it was full"),
    *_counted("refused", (*_EXCHANGE, *_CLIENT), "of the routed: a queue refused it"),
    # -- left without an ack ---------------------------------------------------------------------
    *_counted("expired", _QUEUE, "their time was over"),
    *_counted("dropped", _QUEUE, "dropped from the head because the queue was too long"),
    *(
        column
        for reason in REASONS
        for column in (
            *_counted(f"dead_letter_{reason}", _QUEUE, f"dead letters that queues took ({reason})"),
            *_counted(f"discard_{reason}", _QUEUE, f"gone without a dead letter ({reason})"),
        )
    ),
    *_counted("purge", _QUEUE, "removed by a purge"),
    *_counted("delete", _QUEUE, "held by the queue when it was deleted"),
    # -- what is held ----------------------------------------------------------------------------
    Column("messages", "messages", LAST, _QUEUE, "held at `until`, ready and unacknowledged", 1),
    Column("message_bytes", "bytes", LAST, _QUEUE, "bodies of `messages`", 1),
    Column("messages_peak", "messages", MAX, _QUEUE, "the most held at any time", 1),
    Column("messages_ms", "message milliseconds", SUM, _QUEUE, "`messages`, integrated"),
    Column("message_bytes_ms", "byte milliseconds", SUM, _QUEUE, "`message_bytes`, integrated"),
    Column("oldest_ms", "ms", MAX, _QUEUE, "age of the oldest ready message at `until`, if known"),
    Column("consumers", "consumers", LAST, _QUEUE, "consumers at `until`", 1),
    # -- how long they took ----------------------------------------------------------------------
    Column("latency_ms", "ms", SUM, _QUEUE, "from publish to first delivery, added up"),
    Column("latency_max", "ms", MAX, _QUEUE, "the longest of these"),
    *(
        Column(
            latency_column(bucket), "messages", SUM, _QUEUE,
            f"first deliveries after {latency_from(bucket)} ms or more, less than the next bucket",
        )
        for bucket in range(LATENCY_BUCKETS)
    ),
    # -- connections -----------------------------------------------------------------------------
    Column("recv_oct", "octets", SUM, _CLIENT, "received on the wire", 1),
    Column("send_oct", "octets", SUM, _CLIENT, "sent on the wire", 1),
    Column("recv_cnt", "frames", SUM, _CLIENT, "received", 1),
    Column("send_cnt", "frames", SUM, _CLIENT, "sent", 1),
    Column("connections", "connections", LAST, ("user",), "open at `until`", 1),
    Column("connection_ms", "connection milliseconds", SUM, _CLIENT, "time connected"),
)  # fmt: skip
"""Every number that a line may carry. A name means the same unit and merge in all kinds."""

NAMES: tuple[str, ...] = tuple(dict.fromkeys(column.name for column in COLUMNS))
"""The names of the columns, each once."""

MERGE: dict[str, str] = {column.name: column.merge for column in COLUMNS}


def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns of one kind of line."""
    return tuple(column for column in COLUMNS if kind in column.kinds)
