"""Looking at the messages of a queue without touching them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.fields.codec import text
from broker.fields.properties import readable
from broker.queues.peeking import Peek
from broker.schema.control_schema import QueuePeek
from broker.server.control.encoding import encode_rows, full_name
from broker.server.control.getting import too_large
from broker.server.control.messaging_verbs import queue_of
from broker.server.control.requests import Request, bad_request, handles

COUNT_MAX = 1_000

_READING = 2
_READ_AGAIN_S = 0.005
_ANSWER_S = 30.0
"""A disk that does not answer, or consumers that keep the queue's reader busy."""


async def look_through(go_on: Callable[[], int], name: str) -> None:
    """Calls `go_on()` until it returns 0: 1 is that there is more for a later turn, 2 that a thread
    reads first. Raises RequestError where queue `name` does not come to an end."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _ANSWER_S
    while state := go_on():
        if loop.time() > until:
            raise bad_request(f"queue '{name}' did not answer in {_ANSWER_S:g} seconds")
        await asyncio.sleep(_READ_AGAIN_S if state == _READING else 0)


@handles("queue.peek")
async def queue_peek(request: Request[QueuePeek]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "read", "queue", name)
    if not 0 <= args.count <= COUNT_MAX:
        raise bad_request(f"count must be from 0 to {COUNT_MAX}")
    queue = queue_of(vhost, name, caller, use=True)
    if queue.type == "stream":
        raise bad_request(f"queue '{args.name}' is a stream: use stream.read")
    shown = args.truncate if args.truncate is not None and args.truncate >= 0 else -1
    peek = Peek(queue, args.count, args.bytes_max, shown)
    await look_through(peek.go_on, args.name)
    if peek.too_large:
        raise too_large(queue, peek.too_large, args.bytes_max)
    return await encode_rows(
        {
            "payload": body,
            "payload_bytes": length,
            "properties": readable(properties),
            "exchange": text(exchange),
            "routing_key": text(routing_key),
            "redelivered": redelivered,
        }
        for exchange, routing_key, properties, body, length, redelivered in peek.rows
    )
