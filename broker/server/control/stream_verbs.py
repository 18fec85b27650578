"""Looking into streams."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from broker.fields.codec import octets, text
from broker.fields.properties import readable
from broker.kernel import clock
from broker.schema.control_schema import StreamRead, StreamSearch
from broker.schema.errors import NotFound, describe
from broker.server.control.encoding import full_name
from broker.server.control.getting import too_large
from broker.server.control.requests import Request, RequestError, bad_request, handles
from broker.server.control.stream_searches import Asked, search

COUNT_MAX = 10_000

# A stream that is deleted meanwhile does not answer.
_ANSWER_S = 30.0


def stream_of(request: Request[Any], wanted: str | None = None) -> tuple[Any, Any]:
    """The vhost and the stream that a request names, once its caller may read that."""
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    asked: str = args.name if wanted is None else wanted
    name = full_name(vhost.queues, asked)
    caller.check(vhost.name, "read", "queue", name)
    queue: Any = vhost.queues.get(name)
    if queue is None:
        raise NotFound(f"no {describe('queue', asked, vhost.name)}")
    if queue.type != "stream":
        raise bad_request(f"{describe('queue', asked, vhost.name)} is no stream")
    return vhost, queue


@handles("stream.read")
async def stream_read(request: Request[StreamRead]) -> Any:
    args = request.args
    _, queue = stream_of(request)
    if not 0 <= args.count <= COUNT_MAX:
        raise bad_request(f"count must be from 0 to {COUNT_MAX}")
    offset = args.offset
    if isinstance(offset, str) and re.fullmatch("-?[0-9]{1,18}", offset, re.ASCII):
        offset = int(offset)
    start = queue.start_of(offset, clock.now())
    if start is None:
        raise bad_request(
            f"offset '{args.offset}' is none: expected a number, 'first', 'last', 'next', or an "
            "interval such as '1h'"
        )
    left = args.bytes_max
    messages: list[dict[str, Any]] = []
    for row in await browsed(queue, start, args.count, args.bytes_max):
        left -= shown_bytes(row, args.truncate)
        if left < 0:
            if not messages:
                raise too_large(queue, len(row[5]), args.bytes_max)
            break
        messages.append(shown_row(row, args.truncate))
    return messages


async def browsed(queue: Any, start: Any, count: int, size: int) -> list[Any]:
    """Messages of a stream, at most `count` and about `size` bytes of bodies."""
    answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def done(rows: list[Any]) -> None:
        if not answer.done():
            answer.set_result(rows)

    queue.browse(start, count, size, done)
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await answer
    except TimeoutError:
        raise bad_request(
            f"stream '{queue.name}' did not answer in {_ANSWER_S:g} seconds"
        ) from None


def shown_bytes(row: Any, truncate: int | None) -> int:
    """How much of the body of a stream's message is shown."""
    size = len(row[5])
    return size if truncate is None or truncate < 0 else min(size, truncate)


def shown_row(row: Any, truncate: int | None) -> dict[str, Any]:
    """A message of a stream as the API shows it."""
    offset, timestamp, exchange, routing_key, listed, body = row
    return {
        "offset": offset,
        "timestamp": timestamp,
        "payload": body[: shown_bytes(row, truncate)],
        "payload_bytes": len(body),
        "properties": readable(listed),
        "exchange": text(exchange),
        "routing_key": text(routing_key),
        "redelivered": False,
    }


@handles("stream.search")
async def stream_search(request: Request[StreamSearch]) -> Any:
    args, broker = request.args, request.broker
    vhost, queue = stream_of(request)
    value = octets(args.value) if args.octets is None else args.octets
    asked = Asked(args.key, value, args.first, args.last, args.max)
    found = await search(broker, vhost, queue, asked)
    answer = found.answer
    messages = []
    left = args.bytes_max
    for message in answer.messages:
        try:
            rows = await browsed(queue, queue.start_of(message.offset, clock.now()), 1, 1)
        except RequestError as error:
            answer.lacks(str(error))
            break
        # Retention may have taken it meanwhile.
        found_rows = [row for row in rows if row[0] == message.offset]
        left -= sum(shown_bytes(row, args.truncate) for row in found_rows)
        if left < 0:
            answer.lacks(
                f"the messages found have over {args.bytes_max} bytes (get_bytes_max); "
                "ask for fewer, or give truncate"
            )
            break
        messages += [shown_row(row, args.truncate) for row in found_rows]
    return {
        "messages": messages,
        "complete": answer.is_complete,
        "reasons": answer.reasons,
        "whole_from": found.whole_from,
        "files": answer.files,
        "searched": answer.searched,
        "skipped": answer.skipped,
        "left": answer.left,
        "fetched": answer.fetched,
        "read": answer.read,
    }
