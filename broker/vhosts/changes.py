"""Changes of a vhost as AMQP methods: what the journal holds (docs/formats/definitions.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from broker.fields.codec import Malformed, Reader
from broker.queues.types import MessageQueue
from broker.routing.binding import Binding
from broker.routing.exchange import BoundExchange
from broker.vhosts.bindings import Bindings
from broker.wire.argument_lists import decode_arguments, encode_arguments
from broker.wire.method import Method
from broker.wire.methods import BY_INDEX, BY_NAME

# What no client can send: methods of the queue class with ids that AMQP does not use.
QUEUE_FLOW = Method(50, 200, "queue.flow", (("queue", "shortstr"), ("active", "bit")), False)
QUEUE_DECLARED_BY = Method(
    50, 201, "queue.declared-by", (("queue", "shortstr"), ("user", "shortstr")), False
)
_OWN = {method.name: method for method in (QUEUE_FLOW, QUEUE_DECLARED_BY)}
_OWN_BY_INDEX = {method.index: method for method in _OWN.values()}


def entry(method: str, change: dict[str, Any], incarnation: int) -> bytes:
    """A journal entry: incarnation id, class and method id, arguments."""
    row = _OWN.get(method) or BY_NAME[method]
    return incarnation.to_bytes(8, "big") + encode_arguments(row, change)


def read_entry(data: bytes) -> tuple[str, dict[str, Any], int]:
    """Method, arguments and incarnation id of a journal entry. Raises FrameError."""
    index = int.from_bytes(data[8:12], "big")
    method = _OWN_BY_INDEX.get(index) or BY_INDEX[index]
    return method.name, decode_arguments(method, data[8:]), int.from_bytes(data[:8], "big")


def told(data: bytes) -> str:
    """What an entry that cannot be carried out is about, in words, as far as it can be read."""
    index = int.from_bytes(data[8:12], "big")
    method = _OWN_BY_INDEX.get(index) or BY_INDEX.get(index)
    if method is None:
        return f"an entry with the unknown method {index >> 16}.{index & 0xFFFF}"
    # The first name of each follows a reserved number.
    reader = Reader(data, 12 + 2 * (method.fields[0][1] == "short"))
    try:
        return f"{method.name} of '{reader.short_string()}'"
    except Malformed:
        return method.name


def exchange_change(exchange: BoundExchange) -> dict[str, Any]:
    return {
        "exchange": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def queue_change(queue: MessageQueue) -> dict[str, Any]:
    return {
        "queue": queue.name,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def declared_by(queue: str, user: str) -> tuple[str, dict[str, Any]]:
    return QUEUE_DECLARED_BY.name, {"queue": queue, "user": user}


def binding_change(binding: Binding, verb: str) -> tuple[str, dict[str, Any]]:
    if binding.destination_type == "queue":
        ends = {"queue": binding.destination, "exchange": binding.source}
    else:
        ends = {"destination": binding.destination, "source": binding.source}
    return f"{binding.destination_type}.{verb}", {
        **ends,
        "routing_key": binding.routing_key,
        "arguments": binding.arguments,
    }


NO_ARGUMENTS: dict[str, Any] = {}
"""Shared by all bindings without arguments, which there may be a million of: not to be changed."""


def binding_of(method: str, change: dict[str, Any]) -> Binding:
    key, arguments = change["routing_key"], change["arguments"] or NO_ARGUMENTS
    if method.startswith("queue."):
        return Binding(change["exchange"], change["queue"], "queue", key, arguments)
    return Binding(change["source"], change["destination"], "exchange", key, arguments)


def snapshot(
    exchanges: Collection[BoundExchange], queues: Iterable[MessageQueue], bindings: Bindings
) -> Iterator[bytes]:
    """Entries that make up everything durable as it is now."""
    for exchange in exchanges:
        if exchange.durable and exchange.name and not exchange.name.startswith("amq."):
            yield entry("exchange.declare", exchange_change(exchange), exchange.incarnation)
    for queue in queues:
        if queue.durable and not queue.exclusive:
            yield entry("queue.declare", queue_change(queue), queue.incarnation)
            if queue.declared_by is not None:
                yield entry(*declared_by(queue.name, queue.declared_by), 0)
            if queue.paused:
                yield entry(QUEUE_FLOW.name, {"queue": queue.name, "active": False}, 0)
    for exchange in exchanges:
        for binding in exchange.bindings.values():
            if bindings.is_durable(binding):
                yield entry(*binding_change(binding, "bind"), 0)
