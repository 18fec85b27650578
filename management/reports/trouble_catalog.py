"""Reports of what does not work as it should: slow consumers, refused messages, dead letters."""

from __future__ import annotations

from .measures import (
    ACKED,
    CLIENT_TEXTS,
    DELIVERED,
    IN,
    LAST_SEEN,
    OLDEST,
    OUT,
    PEAK,
    REDELIVERED,
    Column,
    Rows,
)
from .shapes import CLIENT_KEYS, CONNECTION_KEYS, EXCHANGE_KEYS, QUEUE_KEYS, Report, View, texts

REASONS = "rejected", "expired", "maxlen", "delivery_limit"

# A queue whose messages wait longer than this on average, although it has consumers, is slow.
SLOW_WAIT_MS = 60_000
# This number of redeliveries, if they are half of all deliveries, is a storm.
STORM_LEAST = 100

_CONNECTION_TEXTS = (
    *CLIENT_TEXTS,
    Column("connection", "text", "Connection"),
    Column("id", "text", "Id", "names one connection for good; a name may come again"),
)
_SHARE_OF_ACKS = "of what was delivered to be acknowledged, in percent"
_PACE = "acknowledged in a second of each"


def _acking(rows: Rows) -> tuple[Column, ...]:
    """What consumers of clients do with what they get."""
    return (
        Column("messages_out", "count", "Delivered", "delivered or got", DELIVERED, rows),
        Column(
            "to_ack", "count", "To acknowledge", "of these: to be acknowledged",
            ("deliver", "get"), rows,
        ),
        Column("acknowledged", "count", "Acknowledged", "", ("ack",), rows),
        Column("rejected", "count", "Rejected", "without requeue", ("reject",), rows),
        Column(
            "unfinished", "count", "Not finished",
            "neither acknowledged nor rejected in this period: still held by the client, put back "
            "by it, or lost with its connection",
        ),
        Column("unfinished_share", "number", "Not finished %", _SHARE_OF_ACKS),
        Column("redelivered", "count", "Redelivered", REDELIVERED.help, ("redeliver",), rows),
        Column("pace", "number", "Pace", f"{_PACE} connection"),
        Column(
            "connected", "ms", "Connected", "time of all connections added up",
            ("connection_ms",), rows,
        ),
    )  # fmt: skip


CONSUMERS = Report(
    name="consumers",
    title="Slow consumers",
    summary="Queues whose consumers do not keep up, and clients that take messages and do not "
    "finish them.",
    module="trouble",
    transform="consumers",
    grains=("hour", "day"),
    days=1,
    wants_cover=True,
    views=(
        View(
            "queue",
            "Queue",
            QUEUE_KEYS,
            (
                *texts(QUEUE_KEYS, "Queue"),
                Column(
                    "state",
                    "text",
                    "State",
                    "stuck: consumers, messages, and no delivery; storm: half of all deliveries "
                    f"are redeliveries, {STORM_LEAST} at least; slow: messages wait longer than "
                    f"{SLOW_WAIT_MS // 1000} s on average; behind: more came than left; keeps up: "
                    "none of these",
                ),
                Column("held", "count", "Held", "messages at the end of the period"),
                Column(
                    "wait",
                    "ms",
                    "Mean wait",
                    "time of a message in the queue: messages held on average, divided by the rate "
                    "at which they left; empty if none left",
                ),
                Column("consumers", "count", "Consumers", "the most at a time",
                       ("consumers",), merge="max"),
                Column("pace", "number", "Pace", f"{_PACE} consumer"),
                IN,
                OUT,
                ACKED,
                REDELIVERED,
                Column("redelivered_share", "number", "Redelivered %", "of the deliveries"),
                OLDEST,
                PEAK,
            ),
            ("-wait", "-held", "vhost", "queue"),
            "queue",
        ),
        View(
            "client",
            "Client library",
            CLIENT_KEYS,
            (*CLIENT_TEXTS, *_acking("user"), LAST_SEEN),
            ("-unfinished", "-messages_out", "vhost", "user", "client", "version"),
            "client",
        ),
        View(
            "connection",
            "Connection",
            CONNECTION_KEYS,
            (*_CONNECTION_TEXTS, *_acking("connection"), LAST_SEEN),
            ("-unfinished", "-messages_out", "vhost", "connection", "id"),
            "connection",
            grains=("hour",),
        ),
    ),
)  # fmt: skip


def _failed(rows: Rows, of_queue: bool = False) -> tuple[Column, ...]:
    """What was published in vain."""
    published = ("publish_in",) if rows == "exchange" else ("publish",)
    unroutable = (
        Column(
            "returned", "count", "Returned", "mandatory messages without a queue to go to",
            ("return_unroutable",), rows,
        ),
        Column(
            "unroutable", "count", "Unroutable", "other messages without a queue: they are lost",
            ("drop_unroutable",), rows,
        ),
    )  # fmt: skip
    refused = "publishes that it refused because it was full" if of_queue else (
        "routed messages that at least one full queue refused"
    )  # fmt: skip
    return (
        Column("failed", "count", "Failed", "returned, unroutable and refused together"),
        Column("failed_share", "number", "Failed %", "of what was published; for a queue of what "
               "was to be put into it"),
        Column("messages_in", "count", "Published", IN.help if of_queue else
               "messages published, whatever became of them", published, rows),
        *(() if of_queue else unroutable),
        Column("refused", "count", "Refused", refused, ("refused",), rows),
        Column("refused_bytes", "bytes", "Bytes refused", "their bodies", ("refused_bytes",), rows),
    )  # fmt: skip


REFUSED = Report(
    name="refused",
    title="Refused and unroutable",
    summary="Whose messages were returned, lost without a queue, or refused by full queues.",
    module="trouble",
    transform="refused",
    grains=("hour", "day"),
    days=7,
    views=(
        View(
            "publisher",
            "Publisher",
            CLIENT_KEYS,
            (*CLIENT_TEXTS, *_failed("user"), LAST_SEEN),
            ("-failed", "vhost", "user", "client", "version"),
            "user",
        ),
        View(
            "connection",
            "Connection",
            CONNECTION_KEYS,
            (*_CONNECTION_TEXTS, *_failed("connection"), LAST_SEEN),
            ("-failed", "vhost", "connection", "id"),
            "connection",
            grains=("hour",),
        ),
        View(
            "exchange",
            "Exchange",
            EXCHANGE_KEYS,
            (*texts(EXCHANGE_KEYS, "Exchange"), *_failed("exchange"), LAST_SEEN),
            ("-failed", "vhost", "exchange"),
            "exchange",
        ),
        View(
            "queue",
            "Queue",
            QUEUE_KEYS,
            (*texts(QUEUE_KEYS, "Queue"), *_failed("queue", of_queue=True), PEAK, LAST_SEEN),
            ("-failed", "vhost", "queue"),
            "queue",
        ),
    ),
)


def _dead(name: str, title: str, keys: tuple[tuple[str, str], ...]) -> View:
    columns = (
        Column("reason", "text", "Reason", "rejected: by a consumer; expired: their time was over; "
               "maxlen: the queue was too long; delivery_limit: delivered too often"),
        Column("dead_letters", "count", "Dead letters", "messages that other queues took"),
        Column("dead_letter_bytes", "bytes", "Bytes", "their bodies"),
        Column("discarded", "count", "Discarded", "lost: no dead-letter exchange, or no queue "
               "behind it"),
        Column("discarded_bytes", "bytes", "Bytes discarded", "their bodies"),
        Column("share", "number", "Share %", "dead letters and discarded, of all messages that "
               "came into these queues"),
        LAST_SEEN,
    )  # fmt: skip
    named = texts(keys, title)
    order = ("-dead_letters", "-discarded", *(column.name for column in named), "reason")
    return View(name, title, keys, (*named, *columns), order, keys[-1][0])


DEAD_LETTERS = Report(
    name="dead-letters",
    title="Dead letters",
    summary="Where messages become dead letters or are discarded: by the queue they come from, and "
    "why.",
    module="trouble",
    transform="dead_letters",
    grains=("hour", "day"),
    days=7,
    views=(
        _dead("queue", "Queue", QUEUE_KEYS),
        _dead("vhost", "Virtual host", (("vhost", "vhost"),)),
    ),
)
