"""Streams: finding their messages by a key, and replaying them."""

import binascii
import time
from base64 import b64decode
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.responses import Status
from pydantic import Field

from api import payload
from api.ask import ask, given
from api.shapes import Flag, Number, Text
from management.appliance import config
from management.broker_client import BrokerError
from management.replay_words import replay_arguments
from management.search_words import BadWords, check, moment

router = Router(tags=["Streams"])


class SearchQuery(Schema):
    """`from` and `to`: ms since 1970, a day, a time, `yesterday`, or an age such as `2h`. With
    `value_encoding=base64`, `value` may be any octets."""

    value: Text
    value_encoding: Literal["string", "base64"] = "string"
    key: Text | None = None
    first: Text | None = Field(None, alias="from")
    last: Text | None = Field(None, alias="to")
    max: Number = 10
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Number | None = None


class Replay(Schema):
    """`from` and `to`: an offset in digits, or a time as a search has it; both are included. With
    `value`, and `key` if the stream has several, those messages of the range that a search finds,
    `max` at most; with `offsets` these messages. `routing_key` is a pattern, `header` and
    `header_value` say what a header reads. What is not one of these is refused: a replay without a
    filter is one of all messages."""

    model_config = {"extra": "forbid"}

    target: Text
    target_vhost: Text | None = None
    target_type: Literal["queue", "exchange"] = "queue"
    first: Number | Text = Field("", alias="from")
    last: Number | Text = Field("", alias="to")
    key: Text | None = None
    value: Text | None = None
    max: Number | None = None
    offsets: list[int] | None = None
    routing_key: Text | None = None
    header: Text | None = None
    header_value: Text | None = None
    limit: Number | None = None
    rate: Number | None = None
    record: Flag | None = None


@router.get("/streams/{seg:vhost}/{seg:name}/search")
async def search_stream(
    request: HttpRequest, vhost: str, name: str, query: Query[SearchQuery]
) -> Any:
    """Find the newest messages of a stream that have a key, by the stream's index
    (`x-stream-index`). `complete` is false where some may be missing, for the `reasons`."""
    found = await search(request, vhost, name, query)
    return await payload.answer(found.pop("messages"), query.encoding, found)


async def search(request: HttpRequest, vhost: str, name: str, query: SearchQuery) -> dict[str, Any]:
    """The answer of `stream.search`. Raises BrokerError."""
    now_ms = time.time_ns() // 1_000_000
    try:
        first = None if query.first is None else moment(query.first, now_ms)
        last = None if query.last is None else moment(query.last, now_ms, is_end=True)
        check(first, last)
        octets = b64decode(query.value, validate=True) if query.value_encoding == "base64" else None
    except BadWords as error:
        raise BrokerError(400, "bad_request", str(error)) from None
    except binascii.Error as error:
        raise BrokerError(400, "bad_request", f"value is not base64: {error}") from None
    found: dict[str, Any] = await ask(
        request,
        "stream.search",
        vhost=vhost,
        name=name,
        value=query.value,
        max=query.max,
        bytes_max=config().get_bytes_max,
        **given(key=query.key, first=first, last=last, truncate=query.truncate, octets=octets),
    )
    return found


@router.post("/streams/{seg:vhost}/{seg:name}/replay", response={201: Any})
async def replay_stream(request: HttpRequest, vhost: str, name: str, body: Replay) -> Any:
    """Hand messages of a stream over once more, to a queue or an exchange: a range, or what a
    search finds. Each has headers that say that it is a replay. The answer is the transfer, whose
    progress `GET /api/transfers/id` shows."""
    wanted = body.dict()
    try:
        place = replay_arguments(
            str(wanted.pop("first")), str(wanted.pop("last")), "", time.time_ns() // 1_000_000
        )
    except BadWords as error:
        raise BrokerError(400, "bad_request", str(error)) from None
    answer = await ask(
        request, "transfer.replay", vhost=vhost, name=name, **place, **given(**wanted)
    )
    return Status(201, answer)
