"""Every x-argument in one table: type, bounds, what it belongs to, whether it is built, and a line
for people.

A known argument with a wrong value, or one that this broker does not carry out, for example because
an add-on was taken away, is refused with 406 naming it. An unknown one is kept, shown and ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from broker.schema.errors import PreconditionFailed
from broker.schema.times import Timestamp


def is_there(module: str) -> bool:
    """Whether this broker has an add-on, by its module's name below `broker`. Nothing is imported:
    the add-ons lie in a layer above, and the web process imports this table, too."""
    package, _, name = module.rpartition(".")
    place = Path(__file__).parent.parent.joinpath(*package.split("."))
    return PathFinder.find_spec(name, [str(place)]) is not None


INTEGER_MOST = 2**63 - 1
"""What counts and times are kept in has 64 bits and a sign."""

SHORT_STRING_MOST = 255
"""Bytes of a name or a routing key in a frame."""

NAMES_OF_EXCHANGES = ("x-dead-letter-exchange", "alternate-exchange")
"""What RabbitMQ looks at before all other arguments, and refuses in other words."""

DEDUPLICATES = is_there("features.dedup")
DELAYS = is_there("features.delayed")
HASHES = is_there("routing.consistent_hash")
INDEXES = is_there("features.stream_index")


class Argument(NamedTuple):
    """One row. `kind`: integer, string, boolean, array, any. `choices` bound a string, `least` and
    `most` an integer; `most` of a string is in bytes. `only` names the one queue type that it
    belongs to."""

    name: str
    owner: str
    kind: str
    text: str
    built: bool = False
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    only: str = ""


QUEUE = (
    Argument(
        "x-message-ttl",
        "queue",
        "integer",
        "messages expire after this many ms",
        least=0,
        built=True,
    ),
    Argument(
        "x-expires",
        "queue",
        "integer",
        "the queue goes after this many ms without use",
        least=1,
        built=True,
    ),
    Argument(
        "x-max-length",
        "queue",
        "integer",
        "ready messages the queue holds at most",
        least=0,
        built=True,
    ),
    Argument(
        "x-max-length-bytes",
        "queue",
        "integer",
        "bytes of ready messages the queue holds at most",
        least=0,
        built=True,
    ),
    Argument(
        "x-overflow",
        "queue",
        "string",
        "what happens at the limit",
        choices=("drop-head", "reject-publish", "reject-publish-dlx"),
        built=True,
    ),
    Argument(
        "x-dead-letter-exchange",
        "queue",
        "string",
        "where rejected and expired messages go",
        most=SHORT_STRING_MOST,
        built=True,
    ),
    Argument(
        "x-dead-letter-routing-key",
        "queue",
        "string",
        "the routing key they get",
        most=SHORT_STRING_MOST,
        built=True,
    ),
    Argument(
        "x-delivery-limit",
        "queue",
        "integer",
        "how often a message may come back before it is dead-lettered; -1: always",
        least=-1,
        built=True,
    ),
    Argument(
        "x-consumer-timeout",
        "queue",
        "integer",
        "a delivery unacknowledged for longer closes its channel, ms; 0: never",
        least=0,
        built=True,
    ),
    Argument(
        "x-single-active-consumer",
        "queue",
        "boolean",
        "one consumer at a time gets the messages",
        built=True,
    ),
    Argument(
        "x-max-priority",
        "queue",
        "integer",
        "the highest priority of messages; higher ones are delivered first",
        least=0,
        most=255,
        built=True,
    ),
    Argument(
        "x-message-deduplication",
        "queue",
        "boolean",
        "drops messages whose id came before",
        built=DEDUPLICATES,
    ),
    Argument(
        "x-cache-size",
        "queue",
        "integer",
        "ids remembered for deduplication",
        least=0,
        most=1_000_000,
        built=DEDUPLICATES,
    ),
    Argument(
        "x-cache-ttl",
        "queue",
        "integer",
        "ms an id is remembered",
        least=0,
        built=DEDUPLICATES,
    ),
    Argument(
        "x-deduplication-header",
        "queue",
        "string",
        "the header that holds the id",
        built=DEDUPLICATES,
    ),
    Argument(
        "x-max-age",
        "queue",
        "string",
        "age at which a stream drops its oldest messages, such as 7D",
        built=True,
        only="stream",
    ),
    Argument(
        "x-stream-max-segment-size-bytes",
        "queue",
        "integer",
        "size at which a stream begins its next segment; 4 KiB to 256 MiB",
        least=0,
        built=True,
        only="stream",
    ),
    Argument(
        "x-stream-filter-size-bytes",
        "queue",
        "integer",
        "accepted; the filter of a segment has 1 KiB",
        least=16,
        most=255,
        built=True,
        only="stream",
    ),
    Argument(
        "x-stream-index",
        "queue",
        "any",
        "keys that a stream's messages can be found by: message_id, correlation_id, header:NAME",
        built=INDEXES,
        only="stream",
    ),
    Argument(
        "x-stream-tier",
        "queue",
        "boolean",
        "sealed segments of a stream are put into the object store",
        built=True,
        only="stream",
    ),
    Argument(
        "x-stream-local-max-bytes",
        "queue",
        "integer",
        "bytes of a tiered stream's segments that stay on this disk, too",
        least=0,
        built=True,
        only="stream",
    ),
    Argument(
        "x-stream-local-max-age",
        "queue",
        "string",
        "age at which a tiered stream's segments leave this disk, such as 1D",
        built=True,
        only="stream",
    ),
    Argument("x-initial-cluster-size", "queue", "any", "accepted; there is one node", built=True),
    Argument(
        "x-confirm-on",
        "queue",
        "string",
        "when publishers get their confirm",
        choices=("write", "ack", "ack-lean"),
        built=True,
    ),
    Argument("x-queue-type", "queue", "string", "classic, quorum or stream", built=True),
    Argument(
        "x-queue-mode",
        "queue",
        "any",
        "accepted for old clients; messages are on disk anyway",
        built=True,
    ),
    Argument("x-queue-version", "queue", "any", "accepted for old clients", built=True),
    Argument("x-quorum-initial-group-size", "queue", "any", "accepted", built=True),
    Argument("x-quorum-target-group-size", "queue", "any", "accepted", built=True),
    Argument(
        "x-dead-letter-strategy", "queue", "any", "accepted; always at least once", built=True
    ),
    Argument("x-queue-leader-locator", "queue", "any", "accepted; there is one node", built=True),
    Argument("x-queue-master-locator", "queue", "any", "accepted; there is one node", built=True),
)

EXCHANGE = (
    Argument(
        "alternate-exchange",
        "exchange",
        "string",
        "where unroutable messages go",
        most=SHORT_STRING_MOST,
        built=True,
    ),
    Argument(
        "x-alternate-exchange",
        "exchange",
        "string",
        "where unroutable messages go",
        most=SHORT_STRING_MOST,
        built=True,
    ),
    Argument(
        "x-delayed-type", "exchange", "string", "type behind a delayed exchange", built=DELAYS
    ),
    Argument(
        "x-delayed-exchange",
        "exchange",
        "boolean",
        "holds messages back by their x-delay header",
        built=DELAYS,
    ),
    Argument(
        "x-message-deduplication",
        "exchange",
        "boolean",
        "drops messages whose id came before",
        built=DEDUPLICATES,
    ),
    Argument(
        "x-cache-size",
        "exchange",
        "integer",
        "ids remembered for deduplication",
        least=0,
        most=1_000_000,
        built=DEDUPLICATES,
    ),
    Argument(
        "x-cache-ttl", "exchange", "integer", "ms an id is remembered", least=0, built=DEDUPLICATES
    ),
    Argument(
        "x-deduplication-header",
        "exchange",
        "string",
        "the header that holds the id",
        built=DEDUPLICATES,
    ),
    Argument(
        "hash-header", "exchange", "string", "header that a consistent hash uses", built=HASHES
    ),
    Argument("x-hash-on", "exchange", "string", "header that a consistent hash uses", built=HASHES),
    Argument(
        "hash-property",
        "exchange",
        "string",
        "property that a consistent hash uses",
        built=HASHES,
    ),
    Argument(
        "x-algorithm",
        "exchange",
        "string",
        "how a consistent hash spreads: ring or jump",
        choices=("ring", "jump"),
        built=HASHES,
    ),
)

CONSUMER = (
    Argument("x-priority", "consumer", "integer", "higher ones get messages first", built=True),
    Argument("x-stream-offset", "consumer", "any", "where in a stream to begin", built=True),
    Argument(
        "x-stream-automatic-offset-tracking",
        "consumer",
        "any",
        "whether the broker keeps the consumer's place in a stream",
        built=True,
    ),
    Argument("x-stream-filter", "consumer", "any", "which messages of a stream to get", built=True),
    Argument(
        "x-filter-match-type",
        "consumer",
        "any",
        "whether all or any of the filter's conditions have to hold",
        built=True,
    ),
    Argument(
        "x-stream-match-unfiltered",
        "consumer",
        "any",
        "whether messages without a filter value pass the filter",
        built=True,
    ),
    Argument(
        "x-cancel-on-ha-failover", "consumer", "any", "accepted; there is one node", built=True
    ),
)

BINDING = (
    Argument(
        "x-match",
        "binding",
        "string",
        "which headers have to be equal at a headers exchange",
        choices=("all", "any", "all-with-x", "any-with-x"),
        built=True,
    ),
)

# Headers of a message that the broker looks at. A wrong `CC` or `BCC` is refused; the others may
# belong to the application, so a value that means nothing here is left alone.
MESSAGE = (
    Argument("CC", "message", "array", "routing keys it is sent to as well", built=True),
    Argument(
        "BCC", "message", "array", "the same; the header is taken off before delivery", built=True
    ),
    Argument(
        "x-delay", "message", "integer", "ms that a delayed exchange holds it back", built=True
    ),
    Argument(
        "x-stream-filter-value",
        "message",
        "string",
        "what a stream's consumers may filter by",
        built=True,
    ),
    Argument("x-death", "message", "array", "where it has been dead-lettered before", built=True),
    Argument(
        "x-deduplication-header",
        "message",
        "any",
        "the id that deduplication goes by: a text, bytes or an integer",
        built=True,
    ),
    Argument("x-cache-ttl", "message", "integer", "ms its id is remembered", built=True),
)

BY_OWNER = {
    "queue": {row.name: row for row in QUEUE},
    "exchange": {row.name: row for row in EXCHANGE},
    "consumer": {row.name: row for row in CONSUMER},
    "binding": {row.name: row for row in BINDING},
    "message": {row.name: row for row in MESSAGE},
}


def check(owner: str, arguments: Mapping[str, Any], resource: str) -> None:
    """Checks known arguments. `resource` is how errors name the object, as `errors.describe` gives
    it.

    Raises PreconditionFailed (406) naming the argument and what is wrong with it.
    """
    table = BY_OWNER[owner]
    for name, value in arguments.items():
        row = table.get(name)
        if row is None:
            continue
        if name in NAMES_OF_EXCHANGES and not isinstance(value, str):
            raise PreconditionFailed(
                f"invalid type '{kind_of(value)}' for arg '{name}' in {resource}"
            )
        wrong = fault(row, value)
        if wrong is not None:
            raise PreconditionFailed(f"invalid arg '{name}' for {resource}: {wrong}")
        if not row.built or value in row.unbuilt:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {resource}: this broker does not carry it out"
            )
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise PreconditionFailed(
            f"invalid arg 'x-dead-letter-routing-key' for {resource}: "
            "routing_key_but_no_dlx_defined"
        )
    needed = against_lean(arguments)
    if needed is not None:
        raise PreconditionFailed(
            f"invalid arg 'x-confirm-on' for {resource}: 'ack-lean' keeps nothing of what "
            f"it delivers and cannot go with '{needed}'; use 'ack'"
        )


def against_lean(arguments: Mapping[str, Any]) -> str | None:
    """What a queue has that it would lose with the `ack-lean` it asks for, as it has nothing left
    to move, sort or count; None if it can have that."""
    if arguments.get("x-confirm-on") != "ack-lean":
        return None
    for name in ("x-dead-letter-exchange", "x-max-priority", "x-delivery-limit"):
        if name in arguments:
            return name
    # Which has a delivery limit by its type.
    return "x-queue-type" if arguments.get("x-queue-type") == "quorum" else None


def check_type(kind: str, arguments: Mapping[str, Any], resource: str) -> None:
    """Raises PreconditionFailed (406) for an argument that belongs to another queue type."""
    for name in arguments:
        row = BY_OWNER["queue"].get(name)
        if row is not None and row.only not in ("", kind):
            raise PreconditionFailed(f"invalid arg '{name}' for {resource} of queue type {kind}")


def fault(row: Argument, value: Any) -> str | None:
    """What is wrong with a value, in the terms of RabbitMQ's texts, or None."""
    if row.kind == "integer":
        if isinstance(value, (bool, Timestamp)) or not isinstance(value, int):
            return f'"expected integer, got {kind_of(value)}"'
        if row.least is not None and value < row.least:
            return f"{{value_negative,{value}}}" if value < 0 else "{value_zero,0}"
        if row.most is not None and value > row.most:
            return f"{{max_value_exceeded,{value}}}"
        if not -INTEGER_MOST - 1 <= value <= INTEGER_MOST:
            return f"{{value_too_big,{value}}}"
    elif row.kind == "string":
        if not isinstance(value, str):
            return f"{{unacceptable_type,{kind_of(value)}}}"
        if row.choices and value not in row.choices:
            if row.name == "x-overflow":
                return "invalid_overflow"
            return f"invalid value '{value}'; expected {', '.join(row.choices)}"
        if row.most is not None and len(value.encode("utf-8", "surrogateescape")) > row.most:
            return f"longer than {row.most} bytes"
    elif row.kind == "boolean" and not isinstance(value, bool):
        return f"{{unacceptable_type,{kind_of(value)}}}"
    return None


def kind_of(value: Any) -> str:
    """The name of a value's type as RabbitMQ's error texts print it."""
    if value is None:
        return "void"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Timestamp):
        return "timestamp"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "longstr"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, Mapping):
        return "table"
    return "array"


def shown(value: Any) -> str:
    """A value as equivalence errors print it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shown_float(value)
    return str(value)


def _shown_float(value: float) -> str:
    """The shorter of 100.0 and 1.0e2, the first if they are of equal length, as in Erlang."""
    if not math.isfinite(value):
        return str(value)
    plain = f"{Decimal(repr(value)):f}"
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    short = f"{digits if '.' in digits else f'{digits}.0'}e{int(exponent)}"
    return short if len(short) < len(plain) else plain


def _valued(value: object) -> str:
    return f"the value '{shown(value)}' of type '{kind_of(value)}'"


def _told(value: object) -> str:
    """A value beside another one of the same argument: without its type, as RabbitMQ writes it."""
    return "none" if value is None else f"'{shown(value)}'"


def _is_same(one: object, other: object) -> bool:
    """Whether two values of an argument are equal to RabbitMQ: numbers of one class by value, so
    that 10 in four octets is 10 in eight and a time of 10, but neither 10.0 nor true."""
    return one == other and _class_of(one) is _class_of(other)


def _class_of(value: object) -> type:
    """What stands for all types of a value whose values may be equal."""
    for kind in (bool, int, float, str, bytes):
        if isinstance(value, kind):
            return kind
    return type(value)


def check_equivalent(
    owner: str, resource: str, current: Mapping[str, Any], received: Mapping[str, Any]
) -> None:
    """Raises PreconditionFailed (406) if a redeclaration's arguments differ in one that this broker
    carries out. Integers compare by value, whatever their width, and never equal a float; naming
    the default queue type is the same as naming none."""
    table = BY_OWNER[owner]
    for name in sorted({*current, *received}):
        row = table.get(name)
        if row is None or row.kind == "any":
            continue
        types = current.get(name), received.get(name)
        if name == "x-queue-type" and types in ((None, "classic"), ("classic", None)):
            continue
        if name not in received:
            what = f"received none but current is {_valued(current[name])}"
        elif name not in current:
            what = f"received {_valued(received[name])} but current is none"
        elif not _is_same(current[name], received[name]):
            what = f"received {_told(received[name])} but current is {_told(current[name])}"
        else:
            continue
        raise PreconditionFailed(f"inequivalent arg '{name}' for {resource}: {what}")


def check_property(resource: str, name: str, current: Any, received: Any) -> None:
    """The same for a declared property such as durable."""
    if current != received:
        raise PreconditionFailed(
            f"inequivalent arg '{name}' for {resource}: "
            f"received '{shown(received)}' but current is '{shown(current)}'"
        )


def memory_of(value: Any) -> int:
    """Bytes of memory, about, that a consumer, a binding, a queue or an exchange takes for its
    arguments: filters and identities have texts in several forms. 0 for an empty table."""
    if isinstance(value, dict):
        return sum(100 + _text_memory(name) + memory_of(each) for name, each in value.items())
    if isinstance(value, list):
        return 50 + sum(map(memory_of, value))
    return 200 + 3 * _text_memory(value) if isinstance(value, str | bytes) else 30


def _text_memory(text: str | bytes) -> int:
    """One letter that needs four bytes makes all of a text as wide."""
    return len(text) if isinstance(text, bytes) or text.isascii() else 4 * len(text)
