"""One received message as an object, for code off the hot path."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.fields import properties as wire_properties


class Message(NamedTuple):
    """A delivery, a got message or a returned one. Names and properties are bytes as they came;
    `code` is the reply code of a return, else 0."""

    delivery_tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes
    code: int = 0

    def decoded(self) -> dict[str, Any]:
        """The properties by name. Raises broker.fields.codec.Malformed."""
        return wire_properties.decode(self.properties)
