"""Messages as a page shows them: properties in words, headers as a table, the payload by kind.

A payload is never taken for HTML: it is shown as text, as indented JSON or as hexadecimal rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from broker.serving.json_nesting import is_nested_over
from frontend.asking import DEPTH_MAX, DIGITS_MAX, FormError, arguments_table, digits_in

SHOWN_BYTES = 64 * 1024
PREVIEW_CHARACTERS = 160
INDENT = "  "
INDENTED_MOST = 4 * SHOWN_BYTES
"""Characters of indented JSON: a payload of brackets and commas may become much longer than it
is."""
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}:,]|[^][{}:,"\s]+')
_OPENING, _CLOSING = frozenset("[{"), frozenset("]}")
PROPERTIES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


@dataclass(frozen=True)
class ShownMessage:
    """One message for the template `components/messages.html`."""

    exchange: str
    routing_key: str
    redelivered: bool
    size: int
    properties: list[tuple[str, Any]]
    headers: list[tuple[str, str, Any]]
    form: str
    payload: str
    preview: str
    is_cut: bool


def shown(message: Mapping[str, Any]) -> ShownMessage:
    """A message as `queue.get` answers it, made readable."""
    payload: bytes = message["payload"]
    properties = dict(message["properties"] or {})
    headers = properties.pop("headers", None) or {}
    if properties.get("delivery_mode") in (1, 2):
        words = {1: "1 (transient)", 2: "2 (persistent)"}
        properties["delivery_mode"] = words[properties["delivery_mode"]]
    form, text = readable(payload)
    return ShownMessage(
        exchange=message["exchange"],
        routing_key=message["routing_key"],
        redelivered=bool(message["redelivered"]),
        size=message["payload_bytes"],
        properties=sorted(properties.items()),
        headers=[(key, type_word(found), found) for key, found in headers.items()],
        form=form,
        payload=text,
        preview=" ".join(text[: PREVIEW_CHARACTERS * 2].split())[:PREVIEW_CHARACTERS],
        is_cut=message["payload_bytes"] > len(payload),
    )


def readable(payload: bytes) -> tuple[str, str]:
    """What a payload is (`JSON`, `text`, `bytes`, `empty`) and the text that shows it."""
    if not payload:
        return "empty", ""
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        # A payload cut at the end may break a last character; that is still text.
        if error.start < len(payload) - 3 or error.start == 0:
            return "bytes", hexadecimal(payload)
        text = payload[: error.start].decode()
    if "\x00" in text:
        return "bytes", hexadecimal(payload)
    if text.lstrip()[:1] in ("{", "[") and not is_nested_over(text, DEPTH_MAX):
        try:
            # Whether it is JSON; figures stay as they are, some have too many digits to be read.
            json.loads(text, parse_int=str, parse_float=str)
        except ValueError:
            pass
        else:
            return "JSON", indented(text)
    return "text", text


def indented(text: str) -> str:
    """JSON with a line for each value, every text and figure as it was sent: what Python reads and
    writes again is rounded, lacks doubled keys, and may not be encodable.

    As it was sent if indenting makes it longer than `INDENTED_MOST`.
    """
    parts: list[str] = []
    length = depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        depth -= token in _CLOSING
        is_first, gap = before in _OPENING, ""
        if token in _CLOSING:
            gap = "" if is_first else "\n" + INDENT * depth
        elif is_first or before == ",":
            gap = "\n" + INDENT * depth
        elif before == ":":
            gap = " "
        parts += (gap, token)
        length += len(gap) + len(token)
        if length > INDENTED_MOST:
            return text
        depth += token in _OPENING
        before = token
    return "".join(parts)


def hexadecimal(payload: bytes) -> str:
    """Sixteen bytes a row: position, bytes, printable characters."""
    rows = []
    for start in range(0, len(payload), 16):
        part = payload[start : start + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(rows)


def type_word(found: Any) -> str:
    """The kind of a header's value in a word."""
    if isinstance(found, bool):
        return "boolean"
    words = {
        int: "number",
        float: "number",
        str: "text",
        bytes: "bytes",
        dict: "table",
        list: "list",
    }
    return "none" if found is None else words.get(type(found), type(found).__name__)


def to_publish(fields: QueryDict) -> dict[str, Any]:
    """The arguments of `exchange.publish` that a publish form holds. Raises `FormError`."""
    properties: dict[str, Any] = {"delivery_mode": 1 if fields.get("delivery_mode") == "1" else 2}
    for name in PROPERTIES:
        text = fields.get(name, "").strip()
        if not text or name == "delivery_mode":
            continue
        if name in ("priority", "timestamp"):
            properties[name] = digits_in(text)
            if properties[name] is None:
                raise FormError(f"{name} must be a whole number of at most {DIGITS_MAX} digits.")
        else:
            properties[name] = text
    headers = arguments_table(fields, "headers")
    if headers:
        properties["headers"] = headers
    # A form sends line ends as CR LF; what a person typed has LF.
    payload = fields.get("payload", "").replace("\r\n", "\n").encode()
    return {
        "routing_key": fields.get("routing_key", ""),
        "payload": payload,
        "properties": properties,
    }
