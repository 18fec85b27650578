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
from broker.server.control.getting import BYTES_MAX
from broker.server.control.requests import Request, bad_request, handles
from broker.server.control.stream_searches import Searching

COUNT_MAX = 10_000

TIME_MOST = 2**62
"""Ms since 1970."""

# A stream that is deleted meanwhile does not answer.
_ANSWER_S = 30.0


def _stream(request: Request[Any]) -> tuple[Any, Any]:
    """The vhost and the stream that a request names, once its caller may read that."""
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "read", "queue", name)
    queue: Any = vhost.queues.get(name)
    if queue is None:
        raise NotFound(f"no {describe('queue', args.name, vhost.name)}")
    if queue.type != "stream":
        raise bad_request(f"{describe('queue', args.name, vhost.name)} is no stream")
    return vhost, queue


@handles("stream.read")
async def stream_read(request: Request[StreamRead]) -> Any:
    args = request.args
    _, queue = _stream(request)
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
    rows = await _browsed(queue, start, args.count, BYTES_MAX)
    return [_shown(row, args.truncate) for row in rows]


async def _browsed(queue: Any, start: Any, count: int, size: int) -> list[Any]:
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


def _shown(row: Any, truncate: int | None) -> dict[str, Any]:
    offset, timestamp, exchange, routing_key, listed, body = row
    return {
        "offset": offset,
        "timestamp": timestamp,
        "payload": body[: truncate if truncate is not None and truncate >= 0 else None],
        "payload_bytes": len(body),
        "properties": readable(listed),
        "exchange": text(exchange),
        "routing_key": text(routing_key),
        "redelivered": False,
    }


@handles("stream.search")
async def stream_search(request: Request[StreamSearch]) -> Any:
    args, broker = request.args, request.broker
    vhost, queue = _stream(request)
    found = broker.stream_indexes and broker.stream_indexes.of(vhost)
    name = _key(queue, found.names(queue.incarnation) if found else (), args.key)
    most = broker.config.stream_search_results_max
    if not 1 <= args.max <= most:
        raise bad_request(f"max must be from 1 to {most} (stream_search_results_max)")
    first = -TIME_MOST if args.first is None else args.first
    last = TIME_MOST if args.last is None else args.last
    if first > last:
        raise bad_request("the range of time ends before it begins")
    searching = Searching(broker, found, queue)
    answer = await searching.find(name, octets(args.value), first, last, args.max)
    messages = []
    left = BYTES_MAX
    for message in answer.messages:
        rows = await _browsed(queue, queue.start_of(message.offset, clock.now()), 1, 1)
        # Retention may have taken it meanwhile.
        messages += [_shown(row, args.truncate) for row in rows if row[0] == message.offset]
        left -= messages[-1]["payload_bytes"] if messages else 0
        if left <= 0 and message is not answer.messages[-1]:
            answer.lacks(f"the messages found have more than {BYTES_MAX} bytes; ask for fewer")
            break
    return {
        "messages": messages,
        "complete": answer.is_complete,
        "reasons": answer.reasons,
        "whole_from": found.whole_from(queue.incarnation, name),
        "files": answer.files,
        "searched": answer.searched,
        "skipped": answer.skipped,
        "left": answer.left,
        "fetched": answer.fetched,
        "read": answer.read,
    }


def _key(queue: Any, names: tuple[str, ...], asked: str | None) -> str:
    """The key of a stream that a search names."""
    where = describe("queue", queue.name, queue.vhost_name)
    if not names:
        raise bad_request(
            f"{where} has no index: set x-stream-index or the policy key stream-index, such as "
            "'message_id, header:order_id'"
        )
    if asked is None and len(names) == 1:
        return names[0]
    for name in (asked, f"header:{asked}"):
        if name in names:
            return name
    raise bad_request(
        f"{where} is not indexed by '{(asked or '')[:100]}', but by {', '.join(names)}"
    )
