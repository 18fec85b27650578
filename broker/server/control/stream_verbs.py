"""Looking into streams."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from broker.fields.codec import text
from broker.fields.properties import readable
from broker.kernel import clock
from broker.schema.control_schema import StreamRead
from broker.schema.errors import NotFound, describe
from broker.server.control.encoding import full_name
from broker.server.control.getting import BYTES_MAX
from broker.server.control.requests import Request, bad_request, handles

if TYPE_CHECKING:
    pass

COUNT_MAX = 10_000

# A stream that is deleted meanwhile does not answer.
_ANSWER_S = 30.0


@handles("stream.read")
async def stream_read(request: Request[StreamRead]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "read", "queue", name)
    queue: Any = vhost.queues.get(name)
    if queue is None:
        raise NotFound(f"no {describe('queue', args.name, vhost.name)}")
    if queue.type != "stream":
        raise bad_request(f"{describe('queue', args.name, vhost.name)} is no stream")
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
    answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

    def done(rows: list[Any]) -> None:
        if not answer.done():
            answer.set_result(rows)

    queue.browse(start, args.count, BYTES_MAX, done)
    try:
        async with asyncio.timeout(_ANSWER_S):
            rows = await answer
    except TimeoutError:
        raise bad_request(f"stream '{args.name}' did not answer in {_ANSWER_S:g} seconds") from None
    cut = args.truncate if args.truncate is not None and args.truncate >= 0 else None
    return [
        {
            "offset": offset,
            "timestamp": timestamp,
            "payload": body[:cut],
            "payload_bytes": len(body),
            "properties": readable(listed),
            "exchange": text(exchange),
            "routing_key": text(routing_key),
            "redelivered": False,
        }
        for offset, timestamp, exchange, routing_key, listed, body in rows
    ]
