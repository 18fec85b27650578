"""The arguments of queues and exchanges as fields of a form and as words, from the broker's table.

Argument names are the names of the fields. What a field leaves empty is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.schema.arguments import BY_OWNER, Argument
from frontend import figures
from frontend.asking import FormError, arguments_table, digits_in

NUMBER_MAX = 2**53

CHOICES = {
    "x-overflow": {
        "drop-head": "drop-head: the oldest message goes",
        "reject-publish": "reject-publish: the new one is refused (basic.nack)",
        "reject-publish-dlx": "reject-publish-dlx: refused and dead-lettered",
    },
    "x-confirm-on": {
        "write": "write: when the message is on disk",
        "ack": "ack: when a consumer has acked it",
        "ack-lean": "ack-lean: the same, keeping only what waits",
    },
    "x-algorithm": {
        "ring": "ring: fair shares, little moves",
        "jump": "jump: even shares, any weight",
    },
    "x-delayed-type": {
        "topic": "topic",
        "direct": "direct",
        "fanout": "fanout",
        "headers": "headers",
        "x-consistent-hash": "x-consistent-hash",
        "x-random": "x-random",
    },
}
UNITS = {
    "x-message-ttl": "ms",
    "x-expires": "ms",
    "x-max-length": "messages",
    "x-max-length-bytes": "bytes",
    "x-delivery-limit": "returns",
    "x-consumer-timeout": "ms",
    "x-max-priority": "levels",
    "x-cache-size": "ids",
    "x-cache-ttl": "ms",
    "x-stream-max-segment-size-bytes": "bytes",
}


class Group(NamedTuple):
    """Some arguments under a heading. `kinds` are the queue or exchange types they are for; empty
    for all."""

    heading: str
    text: str
    names: tuple[str, ...]
    kinds: tuple[str, ...] = ()


_DUPLICATES = (
    "x-message-deduplication",
    "x-deduplication-header",
    "x-cache-size",
    "x-cache-ttl",
)
_LIKE_CLASSIC = ("", "quorum")

QUEUE = (
    Group("Length", "what it holds at most", ("x-max-length", "x-max-length-bytes")),
    Group(
        "Overflow and time",
        "what goes when it is full, and what expires",
        ("x-overflow", "x-message-ttl", "x-expires"),
        _LIKE_CLASSIC,
    ),
    Group(
        "Dead letters",
        "where rejected, expired and dropped messages go",
        ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-delivery-limit"),
        _LIKE_CLASSIC,
    ),
    Group(
        "Delivery",
        "who gets them, and in which order",
        ("x-max-priority", "x-single-active-consumer", "x-consumer-timeout"),
        _LIKE_CLASSIC,
    ),
    Group(
        "Confirms",
        "when a publisher gets the confirm of its message",
        ("x-confirm-on",),
        _LIKE_CLASSIC,
    ),
    Group("Duplicates", "drop what came before", _DUPLICATES, _LIKE_CLASSIC),
    Group(
        "Stream",
        "what the log keeps; whole segments go, oldest first",
        (
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-stream-index",
            "x-stream-tier",
            "x-stream-local-max-bytes",
            "x-stream-local-max-age",
        ),
        ("stream",),
    ),
)
EXCHANGE = (
    Group(
        "Consistent hash",
        "what decides on the queue; the routing key by default",
        ("hash-header", "hash-property", "x-algorithm"),
        ("x-consistent-hash",),
    ),
    Group("Delay", "how it routes when a message is due", ("x-delayed-type",),
          ("x-delayed-message",)),
    Group("Unroutable messages", "where they go instead of nowhere", ("alternate-exchange",)),
    Group("Delay", "hold messages back by their x-delay header", ("x-delayed-exchange",),
          ("topic", "direct", "fanout", "headers", "x-consistent-hash", "x-random")),
    Group("Duplicates", "drop what came before", _DUPLICATES),
)  # fmt: skip
REQUIRED = ("x-delayed-type",)
"""What a declaration of its type is refused without."""

GROUPS = {"queue": QUEUE, "exchange": EXCHANGE}


def groups(owner: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups of a form with what was typed into it."""
    return [
        {
            "heading": group.heading,
            "text": group.text,
            "kinds": ",".join(kind or "classic" for kind in group.kinds),
            "rows": (rows := [_row(owner, name, fields.get(name, "")) for name in names]),
            "is_open": any(row["value"] for row in rows),
        }
        for group in GROUPS[owner]
        if (names := [name for name in group.names if BY_OWNER[owner][name].built])
    ]


def _row(owner: str, name: str, value: str) -> dict[str, Any]:
    row = BY_OWNER[owner][name]
    return {
        "name": name,
        "kind": row.kind,
        "is_required": name in REQUIRED,
        "choices": list(CHOICES.get(name, {}).items()),
        "unit": UNITS.get(name, ""),
        "text": row.text,
        "value": value,
    }


def given(owner: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a filled form: its fields, and the JSON object in `arguments`.

    Raises FormError.
    """
    found = arguments_table(fields)
    for group in GROUPS[owner]:
        for name in group.names:
            text = fields.get(name, "").strip()
            if text:
                found[name] = _value(BY_OWNER[owner][name], text)
    return found


def _value(row: Argument, text: str) -> Any:
    if row.kind == "boolean":
        return text == "true"
    if row.kind != "integer":
        return text
    return number(row.name, text)


def number(name: str, text: str) -> int:
    """A whole number as a person writes it: `10,000`, `-1`. Raises FormError."""
    digits = text.replace(",", "").replace(" ", "").replace("_", "")
    found = digits_in(digits.removeprefix("-"))
    if found is None or found >= NUMBER_MAX:
        raise FormError(f"{name} must be a whole number.")
    return -found if digits.startswith("-") else found


def amount(name: str, number: int) -> str:
    """A number of an argument with its unit: `86,400,000 ms (1 d)`."""
    unit = UNITS.get(name, "")
    text = f"{number:,} {unit}".rstrip()
    if unit == "ms" and number >= 1_000:
        return f"{text} ({figures.duration(number / 1000)})"
    if unit == "bytes" and number >= 1_024:
        return f"{text} ({figures.size(number)})"
    return text


def meaning(name: str) -> str:
    """What an argument does, in a line; for an unknown one, that it does nothing."""
    for owner in ("queue", "exchange"):
        row = BY_OWNER[owner].get(name)
        if row is not None:
            return row.text
    return "not known here: kept, shown and ignored"
