"""Message bodies in JSON: text as it is, anything else as base64."""

import asyncio
import base64
import binascii
import codecs
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
from django.http import StreamingHttpResponse

from management.broker_client import BrokerError

PIECE = 24 * 1024
"""Octets of a body, or letters of a text in JSON, that are converted in a step of the loop: text of
escapes takes half a millisecond. A multiple of 12, so that pieces of base64 begin anew."""


async def decode(payload: str, encoding: str) -> bytes:
    """The bytes of a `payload` in `payload_encoding` `string` or `base64`.

    Raises `BrokerError` 400 for another encoding or for what is no base64.
    """
    if encoding == "string":
        return payload.encode("utf-8")
    if encoding == "base64":
        found = bytearray()
        try:
            for at in range(0, len(payload), PIECE):
                piece = payload[at : at + PIECE]
                if "=" in piece and at + PIECE < len(payload):
                    raise ValueError("padding in the middle")
                found += base64.b64decode(piece, validate=True)
                if at + PIECE < len(payload):
                    await asyncio.sleep(0)
        except (binascii.Error, ValueError):
            raise BrokerError(400, "bad_request", "payload is not base64") from None
        return bytes(found)
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


async def answer(
    messages: list[dict[str, Any]], encoding: str, found: dict[str, Any] | None = None
) -> Any:
    """Messages in RabbitMQ's shape, as the value `messages` of `found` if that is given. Where
    bodies are large, they are written step by step as the client takes them."""
    if sum(len(message["payload"]) for message in messages) > PIECE:
        return StreamingHttpResponse(
            _written(messages, encoding, found), content_type="application/json; charset=utf-8"
        )
    rows = [shown(message, encoding) for message in messages]
    return rows if found is None else {**found, "messages": rows}


async def _written(
    messages: list[dict[str, Any]], encoding: str, found: dict[str, Any] | None
) -> AsyncIterator[bytes]:
    begin, end = (b"[", b"]") if found is None else (_opened(found) + b'"messages":[', b"]}")
    yield begin
    for number, message in enumerate(messages):
        payload = message.pop("payload")
        is_text = encoding != "base64" and await _is_text(payload)
        row = {
            **message,
            "properties": readable(message["properties"]) or [],
            "payload_encoding": "string" if is_text else "base64",
        }
        yield (b"," if number else b"") + _opened(row) + b'"payload":"'
        for piece in _texts(payload) if is_text else _base64(payload):
            yield piece
            await asyncio.sleep(0)
        yield b'"}'
    yield end


def _opened(row: dict[str, Any]) -> bytes:
    """An object in JSON up to the place of one more key."""
    return msgspec.json.encode(row)[:-1] + (b"," if row else b"")


async def _is_text(payload: bytes) -> bool:
    """Whether it is UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for piece in _pieces(payload):
            decoder.decode(piece)
            await asyncio.sleep(0)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _texts(payload: bytes) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for piece in _pieces(payload):
        yield msgspec.json.encode(decoder.decode(piece))[1:-1]


def _base64(payload: bytes) -> Iterator[bytes]:
    return map(base64.b64encode, _pieces(payload))


def _pieces(payload: bytes) -> Iterator[bytes]:
    return (payload[at : at + PIECE] for at in range(0, len(payload), PIECE))


def readable(value: Any) -> Any:
    """A property value with its byte strings as text, those that are not UTF-8 as base64."""
    if isinstance(value, bytes):
        return encode(value, "auto")[0]
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [readable(item) for item in value]
    return value
