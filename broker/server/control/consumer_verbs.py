"""Verbs on what consumers hold and on the consumers themselves, while they run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.kernel import clock
from broker.schema.control_schema import (
    ChannelPrefetch,
    ConsumerCancel,
    Item,
    QueueUnacked,
)
from broker.schema.errors import NotFound, describe
from broker.server.control.connection_rows import Channels
from broker.server.control.encoding import encode_rows, full_name
from broker.server.control.requests import Caller, Request, bad_request, handles, not_found
from broker.server.control.views import channel_details, channel_name, name_of
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.server.app import Broker

UNACKED_MAX = 10_000
"""Rows of one answer of `queue.unacked`."""

PREFETCH_MAX = 65_535
"""What basic.qos can say."""

_LOOKS = 5_000
"""Entries of a ledger that are looked at in one turn of the loop: well below a millisecond."""


@handles("queue.unacked")
async def queue_unacked(request: Request[QueueUnacked]) -> Any:
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    queue = vhost.queues.get(full_name(vhost.queues, args.name))
    if queue is None:
        raise NotFound(f"no {describe('queue', args.name, vhost.name)}")
    if not 0 <= args.count <= UNACKED_MAX:
        raise bad_request(f"count must be from 0 to {UNACKED_MAX}")
    rows: list[dict[str, Any]] = []
    for connection in list(request.broker.connections.values()):
        if connection.vhost is not vhost:
            continue
        for channel in list(connection.channels.values()):
            is_seen = caller.sight.of_connection(name_of(connection.user))
            node = request.broker.node_name if is_seen else None
            if not await _gather(channel, queue, args.count, rows, node):
                return {"items": await encode_rows(rows), "complete": False}
        await asyncio.sleep(0)
    return {"items": await encode_rows(rows), "complete": True}


async def _gather(
    channel: Any, queue: MessageQueue, count: int, rows: list[dict[str, Any]], node: str | None
) -> bool:
    """Adds the rows of one channel; False when there are more than `count`. Without a `node` they
    do not say whose they are: the caller does not see that connection."""
    # A stream's consumers read through a reader of their own.
    queues = {queue} | {
        each.queue
        for each in channel.deliveries.holders()
        if queue.type == each.queue.type == "stream" and each.queue.name == queue.name
    }
    name, details = None, None
    if node is not None:
        name, details = channel_name(channel), {**channel_details(channel), "node": node}
    pace = Pace()
    since = 1
    while since:
        found, since = channel.deliveries.unacked_of(queues, since, count - len(rows) + 1, _LOOKS)
        for tag, consumer_tag, _, size, redelivered in found:
            if len(rows) == count:
                return False
            rows.append(
                {
                    "delivery_tag": tag,
                    "consumer_tag": consumer_tag,
                    "unacked_for_seconds": _held_for(channel, tag),
                    "channel_name": name,
                    "channel_details": details,
                    "payload_bytes": size,
                    "redelivered": redelivered,
                }
            )
            await pace()
        if since:
            await asyncio.sleep(0)
    return True


def _held_for(channel: Any, tag: int) -> int | None:
    since = channel.ack_timeouts.held_since(tag) if channel.ack_timeouts is not None else None
    return max(0, clock.now() - since) // 1000 if since is not None else None


@handles("consumer.cancel")
async def consumer_cancel(request: Request[ConsumerCancel]) -> Any:
    args, caller = request.args, request.caller
    caller.vhost(args.vhost)
    channel = _channel(request.broker, caller, f"{args.connection} ({args.channel})")
    consumer = channel.deliveries.consumers.get(args.consumer_tag)
    if channel.connection.vhost.name != args.vhost or consumer is None:
        raise not_found("Not Found")
    channel.connection.cancel_consumer(consumer)
    consumer.queue.remove_consumer(consumer)
    return {}


@handles("channel.prefetch")
async def channel_prefetch(request: Request[ChannelPrefetch]) -> Any:
    args = request.args
    if not 0 <= args.prefetch <= PREFETCH_MAX:
        raise bad_request(f"prefetch must be from 0 to {PREFETCH_MAX}")
    channel = _channel(request.broker, request.caller, args.name)
    if args.prefetch == 0 and any(
        consumer.queue.type == "stream" for consumer in channel.deliveries.consumers.values()
    ):
        raise bad_request("a consumer of a stream needs a prefetch above 0")
    channel.deliveries.set_prefetch(args.prefetch)
    return {}


def _channel(broker: Broker, caller: Caller, name: str) -> Any:
    """A channel that the caller may change: of an own connection, or any as administrator."""
    channel = Channels(broker).find(caller, Item(noun="channels", name=name))
    caller.require_owner(name_of(channel.connection.user))
    return channel
