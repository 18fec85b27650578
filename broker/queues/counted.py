"""What a delivery says of the ones before it."""

from __future__ import annotations

from broker.fields.codec import Long, Malformed
from broker.fields.headers import ListedProperties


def with_delivery_count(listed: bytes, count: int) -> bytes:
    """Property flags and list with RabbitMQ's header `x-delivery-count`: how often the message was
    delivered before and came back. What cannot be read, or has no room for it, comes back as it
    is."""
    try:
        properties = ListedProperties(listed)
    except Malformed:
        return listed
    properties.set_header("x-delivery-count", Long(count))
    try:
        return properties.encode()
    except ValueError:
        return listed
