"""Verbs of the firehose: on and off, and traces that lead it to queues. None survives a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import TraceDelete, TracePut, Traces
from broker.schema.errors import describe
from broker.server.control.messaging_verbs import queue_of
from broker.server.control.requests import Request, bad_request, handles, not_found
from broker.server.pace import Pace
from broker.vhosts.tracing import EXCHANGE, Trace

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.vhosts.vhost import VHost

KEPT = 10_000
"""Messages in a queue that was declared for a trace: the newest."""


async def set_tracing(broker: Broker, vhost: VHost, on: bool) -> None:
    """Turns the firehose of a vhost on or off, for the channels that are open and those to come."""
    vhost.tracer.node = broker.node_name
    vhost.tracer.on = on
    pace = Pace()
    for connection in list(broker.connections.values()):
        await pace()
        if connection.vhost is vhost:
            for channel in connection.channels.values():
                # What was asked for meanwhile counts.
                channel.traced = vhost.tracer.on


@handles("traces")
async def traces(request: Request[Traces]) -> Any:
    return [
        {
            "vhost": vhost.name,
            "name": trace.name,
            "format": "queue",
            "pattern": trace.pattern,
            "queue": {"vhost": vhost.name, "name": trace.queue},
        }
        for vhost in request.caller.vhosts(request.args.vhost)
        for trace in vhost.tracer.traces.values()
    ]


@handles("trace.put")
async def trace_put(request: Request[TracePut]) -> Any:
    args = request.args
    vhost = request.caller.vhost(args.vhost)
    known = vhost.tracer.traces
    if not args.name or len(args.name.encode("utf-8", "replace")) > 200:
        raise bad_request("the name of a trace has 1 to 200 bytes")
    if len(args.pattern.encode("utf-8", "replace")) > 255:
        raise bad_request("pattern is longer than 255 bytes")
    old = known.get(args.name)
    new = Trace(args.name, args.pattern, args.queue or f"trace.{args.name}", args.queue is None)
    # Whatever may be refused comes before the first change.
    _have_queue(request, vhost, new, old)
    vhost.bind(EXCHANGE, new.queue, "queue", new.pattern, {})
    known[args.name] = new
    if old is not None:
        _leave(vhost, old, new)
    await set_tracing(request.broker, vhost, True)
    return {"created": old is None}


def _have_queue(request: Request[TracePut], vhost: VHost, new: Trace, old: Trace | None) -> None:
    """Declares the queue of a trace, or checks the one that is given."""
    if not new.is_own:
        queue_of(vhost, new.queue, request.caller, use=True)
        return
    is_ours = old is not None and old.is_own
    if new.queue in vhost.queues and not is_ours:
        raise bad_request(
            f"{describe('queue', new.queue, vhost.name)} exists already: give it as 'queue' to "
            "trace to it, or choose another name for the trace"
        )
    vhost.declare_queue(new.queue, arguments={"x-max-length": KEPT, "x-queue-type": "classic"})


@handles("trace.delete")
async def trace_delete(request: Request[TraceDelete]) -> Any:
    vhost = request.caller.vhost(request.args.vhost)
    trace = vhost.tracer.traces.get(request.args.name)
    if trace is None:
        raise not_found("Not Found")
    del vhost.tracer.traces[trace.name]
    _leave(vhost, trace, None)
    if not vhost.tracer.traces:
        await set_tracing(request.broker, vhost, False)
    return {}


def _leave(vhost: VHost, trace: Trace, new: Trace | None) -> None:
    """Takes away what a trace has and the one that replaces it, if any, does not use."""
    if trace.queue not in vhost.queues:
        return
    if new is not None and new.queue == trace.queue:
        if new.pattern != trace.pattern:
            vhost.unbind(EXCHANGE, trace.queue, "queue", trace.pattern, {})
    elif trace.is_own:
        vhost.delete_queue(trace.queue, if_unused=False, if_empty=False, owner=None)
    else:
        vhost.unbind(EXCHANGE, trace.queue, "queue", trace.pattern, {})
