"""Properties of messages to and from bytes, for users of the client."""

from __future__ import annotations

from broker.fields.properties import decode, encode

__all__ = ["decode", "encode"]
