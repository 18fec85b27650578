"""Properties of messages to and from bytes, for users of the client."""

from __future__ import annotations

from broker.fields.codec import Long, Malformed, Short
from broker.fields.headers import ListedProperties
from broker.fields.properties import TABLE, decode, encode

__all__ = ["TABLE", "ListedProperties", "Long", "Malformed", "Short", "decode", "encode"]
