"""The columns of results, and what of the usage tables each adds up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["time", "text", "count", "bytes", "ms", "number", "money"]
Rows = Literal["queue", "exchange", "user", "connection"]


@dataclass(frozen=True)
class Column:
    """One column of a result: its key in files, what kind of value it holds, its heading, its help.

    `time` is a moment (in JSON and CSV an ISO 8601 UTC text), `count`, `bytes` and `ms` are
    integers, `number` has a fraction and may have a `unit`, `money` is an integer of millionths of
    the currency (in JSON and CSV a decimal text). Where a value has no meaning (the time to drain a
    queue that does not drain) it is null. A column that is summed from the usage tables names their
    columns in `of`, the kind of rows they are of, and whether they add up or the greatest counts.
    """

    name: str
    kind: Kind
    title: str
    help: str = ""
    of: tuple[str, ...] = ()
    rows: Rows = "queue"
    merge: Literal["sum", "max"] = "sum"
    unit: Literal["", "bytes", "%"] = ""


DELIVERED = ("deliver", "deliver_no_ack", "get", "get_no_ack")
DELIVERED_BYTES = tuple(f"{name}_bytes" for name in DELIVERED)

VHOST = Column("vhost", "text", "Virtual host")
AT = Column("at", "time", "Begins", "the hour, day or month begins at this time (UTC)")

IN = Column(
    "messages_in",
    "count",
    "In",
    "messages that the queue took: one that went to three queues counts in each; dead letters from "
    "other queues count, refused publishes do not",
    of=("publish",),
)
BYTES_IN = Column("bytes_in", "bytes", "Bytes in", "their bodies", of=("publish_bytes",))
OUT = Column(
    "messages_out", "count", "Out", "messages delivered or got, redeliveries included", of=DELIVERED
)
BYTES_OUT = Column("bytes_out", "bytes", "Bytes out", "their bodies", of=DELIVERED_BYTES)
ACKED = Column("acknowledged", "count", "Acknowledged", of=("ack",))
REDELIVERED = Column(
    "redelivered", "count", "Redelivered", "deliveries that were not the first", of=("redeliver",)
)
PEAK = Column(
    "messages_peak",
    "count",
    "Most held",
    "the most messages that the queue held at any time, ready and unacknowledged",
    of=("messages_peak",),
    merge="max",
)
OLDEST = Column(
    "oldest", "ms", "Oldest", "the greatest age of a ready message", of=("oldest_ms",), merge="max"
)
LAST_SEEN = Column("last_seen", "time", "Last hour or day")
CLIENT_TEXTS = (
    VHOST,
    Column("user", "text", "User"),
    Column("client", "text", "Library", "what the client says of itself"),
    Column("version", "text", "Version"),
)
QUEUE_COLUMNS = (IN, BYTES_IN, OUT, BYTES_OUT, ACKED, REDELIVERED, PEAK)

PUBLISHED = Column(
    "messages_in", "count", "In", "messages published to the exchange", ("publish_in",), "exchange"
)
PUBLISHED_BYTES = Column(
    "bytes_in", "bytes", "Bytes in", "their bodies", ("publish_in_bytes",), "exchange"
)
UNROUTABLE = Column(
    "unroutable",
    "count",
    "Unroutable",
    "published, without a queue to go to",
    ("return_unroutable", "drop_unroutable"),
    "user",
)
RECEIVED = Column(
    "received",
    "bytes",
    "Received",
    "octets on the wire from the user's clients",
    ("recv_oct",),
    "user",
)
SENT = Column("sent", "bytes", "Sent", "octets on the wire to them", ("send_oct",), "user")
EXCHANGE_COLUMNS = (
    PUBLISHED,
    PUBLISHED_BYTES,
    Column(
        "messages_out",
        "count",
        "Routed",
        "of these: messages with a queue to go to",
        ("publish_out",),
        "exchange",
    ),
    Column(
        "bytes_out", "bytes", "Bytes routed", "their bodies", ("publish_out_bytes",), "exchange"
    ),
    Column(
        "returned",
        "count",
        "Returned",
        "mandatory messages without a queue to go to",
        ("return_unroutable",),
        "exchange",
    ),
    Column(
        "unroutable",
        "count",
        "Unroutable",
        "other messages without a queue: they are lost",
        ("drop_unroutable",),
        "exchange",
    ),
    Column(
        "refused",
        "count",
        "Refused",
        "routed messages that a full queue refused",
        ("refused",),
        "exchange",
    ),
)
USER_COLUMNS = (
    Column(
        "messages_in",
        "count",
        "Published",
        "messages published, whatever became of them",
        ("publish",),
        "user",
    ),
    Column("bytes_in", "bytes", "Bytes published", "their bodies", ("publish_bytes",), "user"),
    Column(
        "messages_out",
        "count",
        "Delivered",
        "messages delivered or got, redeliveries included",
        DELIVERED,
        "user",
    ),
    Column("bytes_out", "bytes", "Bytes delivered", "their bodies", DELIVERED_BYTES, "user"),
    Column("acknowledged", "count", "Acknowledged", "", ("ack",), "user"),
    UNROUTABLE,
    Column(
        "refused",
        "count",
        "Refused",
        "published, and refused by a full queue",
        ("refused",),
        "user",
    ),
    RECEIVED,
    SENT,
    Column(
        "connected",
        "ms",
        "Connected",
        "time of all connections added up",
        ("connection_ms",),
        "user",
    ),
)
VHOST_COLUMNS = (
    replace(PUBLISHED, help="messages published to its exchanges"),
    PUBLISHED_BYTES,
    OUT,
    BYTES_OUT,
    Column(
        "queued",
        "count",
        "Queued",
        "messages that its queues took: one for three queues counts three times",
        ("publish",),
    ),
    ACKED,
    replace(UNROUTABLE, rows="exchange"),
    replace(RECEIVED, help="octets on the wire from clients"),
    replace(SENT, help="octets on the wire to clients"),
)
