"""The page `/metrics/per-object`: a line for each queue, exchange, connection and channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker.server.control.views import channel_name, name_of
from broker.server.metrics.lines import head, line, metric
from broker.server.metrics.node import OBJECT_LEVELS, QUEUE_LEVELS
from broker.stats.gauges import CHANNEL_COUNTERS

Value = Callable[[Any], float]

_CHANNEL_METRICS = {
    "publish": "messages_published_total",
    "confirm": "messages_confirmed_total",
    "return_unroutable": "messages_unroutable_returned_total",
    "drop_unroutable": "messages_unroutable_dropped_total",
    "deliver": "messages_delivered_ack_total",
    "deliver_no_ack": "messages_delivered_total",
    "get": "get_ack_total",
    "get_no_ack": "get_total",
    "get_empty": "get_empty_total",
    "ack": "messages_acked_total",
    "redeliver": "messages_redelivered_total",
}

_QUEUES: tuple[tuple[str, str, Value], ...] = (
    (*QUEUE_LEVELS[0][:2], lambda queue: queue.messages_ready),
    (*QUEUE_LEVELS[1][:2], lambda queue: queue.messages_unacknowledged),
    (
        "queue_messages",
        "Sum of ready and unacknowledged messages",
        lambda queue: queue.messages_ready + queue.messages_unacknowledged,
    ),
    (
        "queue_messages_bytes",
        "Size in bytes of ready and unacknowledged messages",
        lambda queue: queue.message_bytes_ready + queue.message_bytes_unacknowledged,
    ),
    ("queue_consumers", "Consumers on a queue", lambda queue: queue.consumer_count),
)
_EXCHANGES: tuple[tuple[str, str, Value], ...] = (
    (
        "exchange_messages_published_in_total",
        "Messages published into an exchange",
        lambda exchange: exchange.publish_in,
    ),
    (
        "exchange_messages_published_out_total",
        "Messages published from an exchange",
        lambda exchange: exchange.publish_out,
    ),
)
_CONNECTIONS: tuple[tuple[str, str, str, Value], ...] = (
    (
        "connection_incoming_bytes_total",
        "counter",
        "Total number of bytes received on a connection",
        lambda connection: connection.recv_oct,
    ),
    (
        "connection_outgoing_bytes_total",
        "counter",
        "Total number of bytes sent on a connection",
        lambda connection: connection.send_oct,
    ),
    (
        "connection_channels",
        "gauge",
        "Channels on a connection",
        lambda connection: len(connection.channels),
    ),
)


def per_object(broker: Any) -> Iterator[str]:
    """The levels of everything, then a line per object; in short steps."""
    levels = broker.stats.node.levels
    for name, text, level in OBJECT_LEVELS:
        yield metric(name, "gauge", text, levels[level])
    yield from _queues(broker)
    yield from _exchanges(broker)
    yield from _connections(broker)
    yield from _channels(broker)
    yield from _joints(broker)


def _queues(broker: Any) -> Iterator[str]:
    for name, text, value in _QUEUES:
        yield head(name, "gauge", text)
        for vhost in list(broker.vhosts.values()):
            for queue in list(vhost.queues.values()):
                yield line(name, value(queue), {"vhost": vhost.name, "queue": queue.name})


def _exchanges(broker: Any) -> Iterator[str]:
    for name, text, value in _EXCHANGES:
        yield head(name, "counter", text)
        for vhost in list(broker.vhosts.values()):
            for exchange in list(vhost.exchanges.values()):
                labels = {"vhost": vhost.name, "exchange": exchange.name or "amq.default"}
                yield line(name, value(exchange), labels)


def _connections(broker: Any) -> Iterator[str]:
    for name, kind, text, value in _CONNECTIONS:
        yield head(name, kind, text)
        for connection in list(broker.connections.values()):
            labels = {"connection": connection.name, **_owner(connection)}
            yield line(name, value(connection), labels)


def _channels(broker: Any) -> Iterator[str]:
    for counter in CHANNEL_COUNTERS:
        if counter not in _CHANNEL_METRICS:
            continue
        name = f"channel_{_CHANNEL_METRICS[counter]}"
        yield head(name, "counter", f"Messages counted as {counter} on a channel")
        for connection in list(broker.connections.values()):
            for channel in list(connection.channels.values()):
                labels = {"channel": channel_name(channel), **_owner(connection)}
                yield line(name, channel.counters().get(counter, 0), labels)


def _joints(broker: Any) -> Iterator[str]:
    """What add-ons count at queues and exchanges, in the words of their rows in the API."""
    found: dict[str, list[str]] = {}
    for vhost in list(broker.vhosts.values()):
        for kind, things in (("queue", vhost.queues), ("exchange", vhost.exchanges)):
            for thing in list(things.values()):
                labels = {"vhost": vhost.name, kind: thing.name}
                for joint in (getattr(thing, name, None) for name in ("holding", "duplicates")):
                    if joint is not None:
                        _add_joint(found, kind, joint, labels)
                yield ""
    for lines in found.values():
        yield from lines


def _add_joint(found: dict[str, list[str]], kind: str, joint: Any, labels: dict[str, str]) -> None:
    counters = joint.counters()
    for counter, value in counters.items():
        name = f"{kind}_messages_{counter}_total"
        lines = found.setdefault(name, [head(name, "counter", f"Messages counted as {counter}")])
        lines.append(line(name, value, labels))
    for fact, value in joint.facts().items():
        if fact.removesuffix("_count") not in counters:
            name = f"{kind}_{fact}"
            text = f"The field {fact} of its row in the API"
            found.setdefault(name, [head(name, "gauge", text)]).append(line(name, value, labels))


def _owner(connection: Any) -> dict[str, str]:
    return {"vhost": name_of(connection.vhost) or "", "user": name_of(connection.user) or ""}
