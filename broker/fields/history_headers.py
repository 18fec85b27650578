"""The headers of a record of the history, and the original's without them (docs/history.md)."""

from __future__ import annotations

from broker.fields.codec import Malformed
from broker.fields.headers import ListedProperties
from broker.schema.message_history import BODY, BYTES, EVENT, PREFIX


def without_ours(listed: bytes) -> bytes:
    """Properties without the headers of a record: those that a publisher forged, or those of a
    record. What cannot be read stays as it is."""
    try:
        properties = ListedProperties(listed)
    except Malformed:
        return listed
    remove_ours(properties)
    return properties.encode()


def remove_ours(properties: ListedProperties) -> None:
    """The same of properties that are open for changes."""
    for name in properties.names():
        if name.startswith(PREFIX):
            properties.remove_header(name)


def is_no_message(properties: ListedProperties) -> bool:
    """Whether a record is no message that could be handed over: an event, or a record without the
    body that its message had."""
    if properties.header(EVENT) is not None:
        return True
    return properties.header(BODY) is not True and bool(properties.header(BYTES))
