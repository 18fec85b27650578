"""The headers of a record that are the same for all messages of a publisher, and for all that go
one way (docs/history.md)."""

from __future__ import annotations

from typing import Any

from broker.fields.codec import encode_value, octets
from broker.schema.message_history import (
    BODY,
    BYTES,
    CONNECTION,
    DELAYED,
    OUTCOME,
    QUEUE_COUNT,
    QUEUES,
    QUEUES_MAX,
    REFUSED,
    UNROUTABLE,
    USER,
)

SIZE_BYTES = 1 + len(BYTES) + 9
"""Octets of the header that says how large a body is: name, type and number."""


def publisher_fields(user: str, connection: str) -> bytes:
    """Fields of a header table: who publishes."""
    return _fields({USER: user, CONNECTION: connection})


def way_fields(exchange: Any, targets: tuple[Any, ...], has_body: bool) -> list[bytes]:
    """The fields behind those, for each outcome: routed, unroutable, refused. They end with the
    size of the body, 8 octets that are written with each message. What an exchange holds back has
    reached no queue yet."""
    holding = getattr(exchange, "holding", None)
    queues = [target.name for target in targets if target is not holding]
    headers: dict[str, Any] = {QUEUES: queues[:QUEUES_MAX]}
    if len(queues) > QUEUES_MAX:
        headers[QUEUE_COUNT] = len(queues)
    if has_body:
        headers[BODY] = True
    same = _fields(headers)
    size = _name(BYTES) + b"l" + bytes(8)
    # Nearly all messages are routed, and this header would be an eighth of a short record: where it
    # is missing the message was routed.
    routed = {} if len(queues) == len(targets) else {OUTCOME: DELAYED}
    outcomes = (routed, {OUTCOME: UNROUTABLE}, {OUTCOME: REFUSED})
    return [same + _fields(outcome) + size for outcome in outcomes]


def _fields(headers: dict[str, Any]) -> bytes:
    return b"".join(_name(name) + encode_value(value) for name, value in headers.items())


def _name(name: str) -> bytes:
    return bytes([len(octets(name))]) + octets(name)
