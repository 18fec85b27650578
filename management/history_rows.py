"""Records of a vhost's history as people read them: what the broker noted, and the message."""

from __future__ import annotations

from typing import Any

from broker.schema.message_history import (
    BODY,
    BYTES,
    CONNECTION,
    PREFIX,
    QUEUE_COUNT,
    QUEUES,
    USER,
    outcome_of,
)

_NOTED = {
    "user": USER,
    "connection": CONNECTION,
    "queues": QUEUES,
}


def record(message: dict[str, Any]) -> dict[str, Any]:
    """A message of `stream.search` on the history, with what was noted in fields of its own.
    `payload` is None where the body was not recorded."""
    properties = dict(message["properties"])
    headers = properties.get("headers", {})
    own = {
        name: value
        for name, value in headers.items()
        if not name.startswith(PREFIX) and name != "x-stream-offset"
    }
    if own:
        properties["headers"] = own
    else:
        properties.pop("headers", None)
    return {
        **{key: headers.get(name) for key, name in _NOTED.items()},
        "outcome": outcome_of(headers),
        "queue_count": headers.get(QUEUE_COUNT, len(headers.get(QUEUES, ()))),
        "offset": message["offset"],
        "timestamp": message["timestamp"],
        "exchange": message["exchange"],
        "routing_key": message["routing_key"],
        "payload_bytes": headers.get(BYTES, message["payload_bytes"]),
        "payload": message["payload"] if headers.get(BODY) else None,
        "properties": properties,
    }


def is_of(row: dict[str, Any], queue: str | None, exchange: str | None) -> bool:
    """Whether a record is of a message that reached this queue, by this exchange."""
    return (queue is None or queue in (row["queues"] or ())) and (
        exchange is None or exchange == row["exchange"]
    )


EVENTS = {
    "published": "published",
    "stored": "in the queue",
    "delivered": "delivered",
    "delivered_no_ack": "delivered without acknowledgement",
    "got": "taken by basic.get",
    "got_no_ack": "taken by basic.get without acknowledgement",
    "acked": "acknowledged",
    "requeued": "returned to the queue",
    "rejected": "rejected",
    "expired": "expired",
    "dropped": "dropped by the length limit",
    "delivery_limit": "returned too often",
    "dead_lettered": "dead-lettered",
    "discarded": "dead letter without a queue to go to",
    "moved": "moved",
    "copied": "copied",
    "replayed": "replayed",
    "purged": "purged with the queue",
    "deleted": "deleted with the queue",
}
"""Words for the events of a life, and for the state of a message in a queue."""
