"""JSON in and out: what a body may hold, how answers are written, and which keys of them."""

import asyncio
import re
import secrets
from typing import Any

import msgspec
from django.http import HttpRequest
from ninja.parser import Parser
from ninja.renderers import BaseRenderer

from broker.schema.columns import chosen
from broker.serving.json_nesting import is_nested_over
from broker.serving.json_texts import long_texts
from broker.settings.bounds import BODY_VALUES_MAX

DEPTH_MAX = 64
LARGE = 256 * 1024
"""Octets from which on a body is parsed by a thread, without its long texts."""
LONG = 64 * 1024
"""Octets of a text in such a body from which on the loop decodes it in steps instead."""
PIECE = 128 * 1024
"""Octets that are decoded in one of these steps: a quarter of a millisecond."""
_HIGH = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
"""The escape of the first of a surrogate pair."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1


class BadBody(Exception):
    """A body that cannot be taken; the text says why."""


def parse(body: bytes) -> dict[str, Any]:
    """The object a body holds; an empty body is an empty object.

    Raises `BadBody` for anything but a JSON object in UTF-8, for more than `DEPTH_MAX` levels, more
    than `BODY_VALUES_MAX` values, and for integers that no AMQP field can hold.
    """
    if not body.strip():
        return {}
    if is_nested_over(body, DEPTH_MAX):
        raise BadBody(f"too_deep: the body is nested over {DEPTH_MAX} levels")
    try:
        if len(body) > BODY_VALUES_MAX:
            _check_width(body)
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBody(f"not_json: {error}") from None
    if not isinstance(value, dict):
        raise BadBody("not_json: the body must be an object")
    _check(value)
    return value


class _Texts(msgspec.Struct):
    """Where long texts are at home: a message's body, a parameter's value. Anything else is passed
    over without becoming an object."""

    payload: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()


def _check_width(body: bytes) -> None:
    """Before it is decoded, which would hold up the loop: 50 ms for 100,000 keys."""
    count = body.count(b",")
    if count >= BODY_VALUES_MAX:
        texts = msgspec.json.decode(body, type=_Texts)
        for text in (bytes(texts.payload), bytes(texts.value)):
            if text.startswith(b'"'):
                count -= text.count(b",")
    if count >= BODY_VALUES_MAX:
        raise BadBody(f"too_wide: the body has over {BODY_VALUES_MAX} values")


def _check(value: Any) -> None:
    level = [value]
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif type(item) is int and not INTEGER_MIN <= item <= INTEGER_MAX:
                raise BadBody(f"integer_out_of_range: {item!s:.40} does not fit in 64 bits")
        level = below


async def parse_aside(request: HttpRequest) -> None:
    """Parses a large body for `ObjectParser`, its long texts in steps: one of 10 MB takes 30 ms,
    and a thread that decodes it keeps all others from Python meanwhile."""
    if len(request.body) > LARGE:
        try:
            request.parsed = await parse_in_steps(request.body)
        except BadBody as fault:
            request.parsed = str(fault)  # not the fault: it refers to this frame


async def parse_in_steps(body: bytes) -> dict[str, Any]:
    """As `parse`; only what is left without the long texts is decoded at once."""
    places = await asyncio.to_thread(long_texts, body, LONG)
    # Stands for them meanwhile; no client can guess it.
    mark = secrets.token_hex(16)
    parts: list[bytes] = []
    at = 0
    for number, (first, end) in enumerate(places):
        parts += [body[at:first], f"{mark}{number}".encode()]
        at = end
    value = await asyncio.to_thread(parse, b"".join([*parts, body[at:]]))
    texts = {
        f"{mark}{number}": await _text(body, first, end)
        for number, (first, end) in enumerate(places)
    }
    _put_back(value, texts)
    if texts:  # one of them is a key
        return await asyncio.to_thread(parse, body)
    return value


async def _text(body: bytes, first: int, end: int) -> str:
    """The text at [first, end) of a document, decoded piece by piece. Raises BadBody."""
    pieces: list[str] = []
    while first < end:
        until = _border(body, first, min(first + PIECE, end)) if end - first > PIECE else end
        try:
            pieces.append(msgspec.json.decode(b'"%b"' % body[first:until], type=str))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadBody(f"not_json: {error}") from None
        first = until
        await asyncio.sleep(0)
    return "".join(pieces)


def _border(body: bytes, first: int, until: int) -> int:
    """The last place up to `until` where a text may be cut: between characters, outside of an
    escape, and not between the two of a surrogate pair."""
    while body[until] & 0xC0 == 0x80:
        until -= 1
    at = body.rfind(b"\\", max(first, until - 5), until)
    length = 6 if body[at + 1 : at + 2] == b"u" else 2
    if at >= 0 and until < at + length and _begins_escape(body, first, at):
        until = at
    at = until - 6
    if at >= first and _HIGH.fullmatch(body, at, until) and _begins_escape(body, first, at):
        until = at
    return until


def _begins_escape(body: bytes, first: int, at: int) -> bool:
    """Whether the backslash at this place is not the second of two."""
    before = at
    while before > first and body[before - 1] == 0x5C:
        before -= 1
    return (at - before) % 2 == 0


def _put_back(value: Any, texts: dict[str, str]) -> None:
    """Puts texts where their marks stand as values, and takes them out of `texts`."""
    level = [value]
    while level and texts:
        below: list[Any] = []
        for item in level:
            places = item.items() if isinstance(item, dict) else enumerate(item)
            for place, each in list(places):
                if isinstance(each, str) and each in texts:
                    item[place] = texts.pop(each)
                elif isinstance(each, (dict, list)):
                    below.append(each)
        level = below


class ObjectParser(Parser):
    """Lets ninja read bodies by `parse`."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        parsed: dict[str, Any] | str | None = getattr(request, "parsed", None)
        if parsed is None:
            return parse(request.body)
        del request.parsed
        if isinstance(parsed, str):
            raise BadBody(parsed)
        return parsed


class Renderer(BaseRenderer):
    """JSON by msgspec: integers of any size, UTF-8 as it is, bytes as base64.

    The parameter `columns` chooses keys of any object that a GET answers; in lists of the verb
    `list` the broker has done it.
    """

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        columns = request.GET.get("columns")
        if columns and response_status == 200 and not hasattr(request, "columns_chosen"):
            data = _chosen(data, [name for name in columns.split(",") if name])
        return msgspec.json.encode(data)


def _chosen(data: Any, columns: list[str]) -> Any:
    if isinstance(data, dict):
        return chosen(data, columns)
    if isinstance(data, list):
        return [chosen(row, columns) if isinstance(row, dict) else row for row in data]
    return data
