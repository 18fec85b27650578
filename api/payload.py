"""Message bodies in JSON: text as it is, anything else as base64."""

import base64
import binascii
from typing import Any

from management.broker_client import BrokerError


def decode(payload: str, encoding: str) -> bytes:
    """The bytes of a `payload` in `payload_encoding` `string` or `base64`.

    Raises `BrokerError` 400 for another encoding or for what is no base64.
    """
    if encoding == "string":
        return payload.encode("utf-8")
    if encoding == "base64":
        try:
            return base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            raise BrokerError(400, "bad_request", "payload is not base64") from None
    raise BrokerError(400, "bad_request", f"payload_encoding_unsupported: {encoding:.100}")


def encode(payload: bytes, encoding: str) -> tuple[str, str]:
    """`payload` and `payload_encoding`: with `auto`, base64 only for what is not UTF-8."""
    if encoding != "base64":
        try:
            return payload.decode("utf-8"), "string"
        except UnicodeDecodeError:
            pass
    return base64.b64encode(payload).decode("ascii"), "base64"


def shown(message: dict[str, Any], encoding: str) -> dict[str, Any]:
    """A message of `queue.get` in RabbitMQ's shape; no properties are an empty list there."""
    text, used = encode(message["payload"], encoding)
    properties = readable(message["properties"]) or []
    return {**message, "properties": properties, "payload": text, "payload_encoding": used}


def readable(value: Any) -> Any:
    """A property value with its byte strings as text, those that are not UTF-8 as base64."""
    if isinstance(value, bytes):
        return encode(value, "auto")[0]
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [readable(item) for item in value]
    return value
