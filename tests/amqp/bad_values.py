"""Values that each argument refuses, and the text that names what is wrong with them.

`tests/tidy/test_register.py` compares the names with the table of arguments in the broker.
"""

from typing import Any

import pytest

from tests.amqp.field_tables import Typed

Bad = dict[str, tuple[tuple[Any, str], ...]]

NO_INTEGER: tuple[tuple[Any, str], ...] = (
    ("5", "expected integer, got longstr"),
    (1.5, "expected integer, got double"),
    (True, "expected integer, got bool"),
    (None, "expected integer, got void"),
    ([5], "expected integer, got array"),
    ({"a": 5}, "expected integer, got table"),
    (Typed("T", 5), "expected integer, got timestamp"),
    (Typed("T", 2**64 - 1), "expected integer, got timestamp"),
)
NEGATIVE = (*NO_INTEGER, (-1, "value_negative,-1"), (-(2**63), "value_negative"))
NO_STRING: tuple[tuple[Any, str], ...] = (
    (5, "{unacceptable_type,signedint}"),
    (True, "{unacceptable_type,bool}"),
    (None, "{unacceptable_type,void}"),
    (["a"], "{unacceptable_type,array}"),
)
LONG_NAME = (("x" * 256, "longer than 255 bytes"), ("é" * 128, "longer than 255 bytes"))
NO_NAME = (*NO_STRING, *LONG_NAME)
NO_EXCHANGE = (
    (5, "invalid type 'signedint' for arg"),
    (True, "invalid type 'bool' for arg"),
    (None, "invalid type 'void' for arg"),
    (["a"], "invalid type 'array' for arg"),
    *LONG_NAME,
)
NO_BOOLEAN: tuple[tuple[Any, str], ...] = (
    (1, "{unacceptable_type,signedint}"),
    ("true", "{unacceptable_type,longstr}"),
    (None, "{unacceptable_type,void}"),
)

DUPLICATES: Bad = {
    "x-message-deduplication": NO_BOOLEAN,
    "x-cache-size": (*NEGATIVE, (1_000_001, "max_value_exceeded")),
    "x-cache-ttl": NEGATIVE,
    "x-deduplication-header": NO_STRING,
}

QUEUE: Bad = {
    **DUPLICATES,
    "x-message-ttl": NEGATIVE,
    "x-expires": (*NEGATIVE, (0, "value_zero")),
    "x-max-length": NEGATIVE,
    "x-max-length-bytes": NEGATIVE,
    "x-overflow": (*NO_STRING, ("drop-tail", "invalid_overflow"), ("", "invalid_overflow")),
    "x-dead-letter-exchange": NO_EXCHANGE,
    "x-dead-letter-routing-key": (*NO_NAME, ("alone", "routing_key_but_no_dlx_defined")),
    "x-delivery-limit": (*NO_INTEGER, (-2, "value_negative,-2")),
    "x-consumer-timeout": NEGATIVE,
    "x-single-active-consumer": NO_BOOLEAN,
    "x-max-priority": (*NEGATIVE, (256, "max_value_exceeded,256")),
    "x-max-age": tuple(
        (value, "'x-max-age'") for value in (7, True, None, "", "D", "7d", "-1D", "1.5h")
    ),
    "x-stream-max-segment-size-bytes": NEGATIVE,
    "x-stream-filter-size-bytes": (
        *NO_INTEGER,
        (15, "'x-stream-filter-size-bytes'"),
        (256, "max_value_exceeded,256"),
    ),
    "x-stream-index": tuple(
        (value, "'x-stream-index'")
        for value in (5, True, None, "", "id", "header:", ["message_id", 5], {"message_id": 1})
    ),
    "x-stream-tier": NO_BOOLEAN,
    "x-stream-local-max-bytes": NEGATIVE,
    "x-stream-local-max-age": tuple(
        (value, "'x-stream-local-max-age'") for value in (7, True, None, "", "D", "7d", "-1D")
    ),
    "x-confirm-on": (*NO_STRING, ("read", "invalid value 'read'")),
    "x-queue-type": ((5, "x-queue-type"), (True, "x-queue-type"), ("bogus", "'bogus'")),
}

# What goes with the argument where it would be refused without it.
QUEUE_TYPE = {
    "x-max-age": "stream",
    "x-stream-max-segment-size-bytes": "stream",
    "x-stream-filter-size-bytes": "stream",
    "x-stream-index": "stream",
    "x-stream-tier": "stream",
    "x-stream-local-max-bytes": "stream",
    "x-stream-local-max-age": "stream",
}

EXCHANGE: Bad = {
    **DUPLICATES,
    "alternate-exchange": NO_EXCHANGE,
    "x-alternate-exchange": NO_NAME,
    "x-delayed-exchange": NO_BOOLEAN,
    "x-delayed-type": ((5, "x-delayed-type"), ("nothing", "x-delayed-type")),
    "hash-header": NO_STRING,
    "x-hash-on": NO_STRING,
    "hash-property": (*NO_STRING, ("app_id", "Unsupported property: app_id")),
    "x-algorithm": (*NO_STRING, ("rendezvous", "invalid value 'rendezvous'")),
}
EXCHANGE_TYPE = {
    "x-delayed-type": "x-delayed-message",
    "hash-header": "x-consistent-hash",
    "x-hash-on": "x-consistent-hash",
    "hash-property": "x-consistent-hash",
    "x-algorithm": "x-consistent-hash",
}

CONSUMER: Bad = {
    "x-priority": NO_INTEGER,
    "x-stream-offset": tuple(
        (value, "'x-stream-offset'") for value in ("middle", "17", "", True, 1.5, {}, [])
    ),
    "x-stream-automatic-offset-tracking": (
        (1, "'x-stream-automatic-offset-tracking'"),
        ("yes", "'x-stream-automatic-offset-tracking'"),
    ),
    "x-stream-filter": tuple((value, "'x-stream-filter'") for value in (7, [7], {"a": {}}, True)),
    "x-filter-match-type": tuple(
        (value, "'x-filter-match-type'") for value in ("some", "", 1, True)
    ),
    "x-stream-match-unfiltered": (
        ("yes", "'x-stream-match-unfiltered'"),
        (1, "'x-stream-match-unfiltered'"),
    ),
}

BINDING: Bad = {
    "x-match": tuple(
        (value, "Invalid x-match field value") for value in ("some", "ALL", "", 5, True, None)
    ),
}

ALL: dict[str, Bad] = {
    "queue": QUEUE,
    "exchange": EXCHANGE,
    "consumer": CONSUMER,
    "binding": BINDING,
}

# Arguments that mean nothing here: any value is taken, since clients send them to any broker.
TAKES_ANYTHING = {
    "queue": (
        "x-initial-cluster-size",
        "x-queue-mode",
        "x-queue-version",
        "x-quorum-initial-group-size",
        "x-quorum-target-group-size",
        "x-dead-letter-strategy",
        "x-queue-leader-locator",
        "x-queue-master-locator",
    ),
    "consumer": ("x-cancel-on-ha-failover",),
}
ANYTHING: tuple[Any, ...] = (5, -1.5, "odd", "", True, None, {"a": [1]}, [None])


def cases(owner: str) -> list[Any]:
    """(name, value, text) of one table, with ids such as `x-expires=0`."""
    return [
        pytest.param(name, value, text, id=f"{name}={value!r}")
        for name, rows in ALL[owner].items()
        for value, text in rows
    ]
