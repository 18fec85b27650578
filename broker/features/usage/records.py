"""The lines of the usage feed: which kinds there are and which counters each carries.

`docs/formats/usage.md` is the same in prose. A counter is added by adding its name here; a change
that older readers would misunderstand raises SCHEMA_VERSION.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 1

# What each kind of line counts since the line before. RabbitMQ's names; `_bytes` are of message
# bodies, `_oct` are octets on the wire.
QUEUE_COUNTERS = (
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
)
EXCHANGE_COUNTERS = ("publish_in", "publish_out")
CONNECTION_COUNTERS = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")

# What a queue holds at the end of the line's interval: not a difference.
QUEUE_LEVELS = ("messages", "message_bytes", "consumers")


def difference(now: tuple[int, ...], before: tuple[int, ...] | None) -> tuple[int, ...]:
    """How much each counter rose. A counter that fell belongs to a new object of the same name: it
    counts from zero.
    """
    if before is None or any(a < b for a, b in zip(now, before, strict=True)):
        return now
    return tuple(a - b for a, b in zip(now, before, strict=True))


def line(
    kind: str,
    since_ms: int,
    until_ms: int,
    identity: Mapping[str, str],
    counters: Mapping[str, int],
) -> dict[str, Any]:
    """One line as a map, zeros left out: `since` and `until` are UTC milliseconds, the interval is
    half open.
    """
    return {
        "v": SCHEMA_VERSION,
        "kind": kind,
        "since": since_ms,
        "until": until_ms,
        **identity,
        **{name: value for name, value in counters.items() if value},
    }
