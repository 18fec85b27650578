"""Metrics of single objects: families of them under RabbitMQ's names.

`/metrics/per-object` has all, `/metrics/detailed` those that are asked for, with the prefix
`rabbitmq_detailed_`. What is not known of an object has no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from broker.server.control.views import channel_name, name_of
from broker.server.metrics.lines import head, line
from broker.server.metrics.sums import QUEUE_TYPES, REASONS
from broker.stats.ended import counts_of

Labels = dict[str, str]


class Scope(NamedTuple):
    """Which objects are shown."""

    broker: Any
    vhosts: frozenset[str] | None = None
    """Names; None for all."""
    matches: Callable[[str], bool] | None = None
    """Which names of queues."""
    prefix: str = ""

    def all_vhosts(self) -> Iterator[Any]:
        for vhost in list(self.broker.vhosts.values()):
            if self.vhosts is None or vhost.name in self.vhosts:
                yield vhost

    def queues(self) -> Iterator[tuple[Labels, Any]]:
        for vhost in self.all_vhosts():
            for queue in list(vhost.queues.values()):
                if self.matches is None or self.matches(queue.name):
                    yield {"vhost": vhost.name, "queue": queue.name}, queue

    def exchanges(self) -> Iterator[tuple[Labels, Any]]:
        for vhost in self.all_vhosts():
            for exchange in list(vhost.exchanges.values()):
                yield {"vhost": vhost.name, "exchange": exchange.name or "amq.default"}, exchange

    def connections(self) -> Iterator[tuple[Labels, Any]]:
        for connection in list(self.broker.connections.values()):
            vhost = name_of(connection.vhost) or ""
            if self.vhosts is None or vhost in self.vhosts:
                user = name_of(connection.user) or ""
                yield {"connection": connection.name, "vhost": vhost, "user": user}, connection

    def channels(self) -> Iterator[tuple[Labels, Any]]:
        for labels, connection in self.connections():
            owner = {"vhost": labels["vhost"], "user": labels["user"]}
            for channel in list(connection.channels.values()):
                yield {"channel": channel_name(channel), **owner}, channel

    def virtual_hosts(self) -> Iterator[tuple[Labels, Any]]:
        for vhost in self.all_vhosts():
            yield {"vhost": vhost.name}, vhost


class Row(NamedTuple):
    """One metric: `value` is an attribute's name, a counter's with a leading `#`, or a function."""

    name: str
    kind: str
    text: str
    value: str | Callable[[Any], float | None]


class Family(NamedTuple):
    """Metrics of objects of one kind, a method of `Scope`."""

    objects: str
    rows: tuple[Row, ...]


def _gauges(*rows: tuple[str, str, str | Callable[[Any], float | None]]) -> tuple[Row, ...]:
    return tuple(Row(name, "gauge", text, value) for name, text, value in rows)


def _counters(*rows: tuple[str, str, str | Callable[[Any], float | None]]) -> tuple[Row, ...]:
    return tuple(Row(f"{name}_total", "counter", text, value) for name, text, value in rows)


def _unless_all(name: str, queue: Any) -> float | None:
    """Of messages in memory: where all are or none is."""
    in_memory = queue.messages_ram
    total = queue.messages_ready + queue.messages_unacknowledged
    if in_memory not in (0, total):
        return None
    value: float = getattr(queue, name) if in_memory else 0
    return value


def _size(queue: Any) -> float:
    size: float = queue.message_bytes_ready + queue.message_bytes_unacknowledged
    return size


def _size_in_memory(queue: Any) -> float | None:
    ready = _unless_all("message_bytes_ready", queue)
    return None if ready is None else ready + (queue.messages_ram and _size(queue) - ready)


_CONSUMERS = _gauges(("queue_consumers", "Consumers on a queue", "consumer_count"))
FAMILIES: dict[str, Family] = {
    "queue_coarse_metrics": Family(
        "queues",
        _gauges(
            (
                "queue_messages_ready",
                "Messages ready to be delivered to consumers",
                "messages_ready",
            ),
            (
                "queue_messages_unacked",
                "Messages delivered to consumers but not yet acknowledged",
                "messages_unacknowledged",
            ),
            (
                "queue_messages",
                "Sum of ready and unacknowledged messages - total queue depth",
                lambda queue: queue.messages_ready + queue.messages_unacknowledged,
            ),
        ),
    ),
    "queue_consumer_count": Family("queues", _CONSUMERS),
    "queue_metrics": Family(
        "queues",
        _CONSUMERS
        + _gauges(
            ("queue_consumer_capacity", "Consumer capacity", "consumer_capacity"),
            ("queue_consumer_utilisation", "Same as consumer capacity", "consumer_capacity"),
            ("queue_process_memory_bytes", "Memory in bytes used by the queue", "memory"),
            (
                "queue_messages_ram",
                "Ready and unacknowledged messages stored in memory",
                "messages_ram",
            ),
            (
                "queue_messages_ram_bytes",
                "Size of ready and unacknowledged messages stored in memory",
                _size_in_memory,
            ),
            (
                "queue_messages_ready_ram",
                "Ready messages stored in memory",
                lambda queue: _unless_all("messages_ready", queue),
            ),
            (
                "queue_messages_unacked_ram",
                "Unacknowledged messages stored in memory",
                lambda queue: _unless_all("messages_unacknowledged", queue),
            ),
            ("queue_messages_persistent", "Persistent messages", "messages_persistent"),
            (
                "queue_messages_persistent_bytes",
                "Size in bytes of persistent messages",
                "message_bytes_persistent",
            ),
            (
                "queue_messages_bytes",
                "Size in bytes of ready and unacknowledged messages",
                _size,
            ),
            (
                "queue_messages_ready_bytes",
                "Size in bytes of ready messages",
                "message_bytes_ready",
            ),
            (
                "queue_messages_unacked_bytes",
                "Size in bytes of all unacknowledged messages",
                "message_bytes_unacknowledged",
            ),
            (
                "queue_head_message_timestamp",
                "Timestamp of the first message in the queue, if any",
                "head_message_timestamp",
            ),
            ("queue_disk_bytes", "Bytes of the files of a queue", "disk_bytes"),
            ("queue_segments", "Segments of a queue", "segments"),
        ),
    ),
    "queue_delivery_metrics": Family(
        "queues",
        _counters(
            ("queue_messages_published", "Messages published to a queue", "#publish"),
            ("queue_get_ack", "Messages fetched with basic.get, to be acknowledged", "#get"),
            (
                "queue_get",
                "Messages fetched with basic.get in automatic acknowledgement mode",
                "#get_no_ack",
            ),
            (
                "queue_messages_delivered_ack",
                "Messages delivered to consumers in manual acknowledgement mode",
                "#deliver",
            ),
            (
                "queue_messages_delivered",
                "Messages delivered to consumers in automatic acknowledgement mode",
                "#deliver_no_ack",
            ),
            ("queue_messages_redelivered", "Messages delivered once more", "#redeliver"),
            ("queue_messages_acked", "Messages acknowledged by consumers", "#ack"),
            ("queue_get_empty", "Times basic.get operations fetched no message", "#get_empty"),
        ),
    ),
    "exchange_metrics": Family(
        "exchanges",
        _counters(
            ("exchange_messages_published", "Messages published to an exchange", "publish_in"),
            (
                "exchange_messages_published_in",
                "Messages published into an exchange",
                "publish_in",
            ),
            (
                "exchange_messages_published_out",
                "Messages published from an exchange",
                "publish_out",
            ),
            (
                "exchange_messages_unroutable",
                "Messages published to an exchange that reached no queue",
                lambda exchange: max(0, exchange.publish_in - exchange.publish_out),
            ),
        ),
    ),
    "connection_coarse_metrics": Family(
        "connections",
        _counters(
            (
                "connection_incoming_bytes",
                "Total number of bytes received on a connection",
                "recv_oct",
            ),
            ("connection_outgoing_bytes", "Total number of bytes sent on a connection", "send_oct"),
        ),
    ),
    "connection_metrics": Family(
        "connections",
        _counters(
            ("connection_incoming_packets", "Frames received on a connection", "recv_cnt"),
            ("connection_outgoing_packets", "Writes to a connection", "send_cnt"),
        )
        + _gauges(
            (
                "connection_pending_bytes",
                "Bytes that wait to be sent on a connection",
                "send_pend",
            ),
            (
                "connection_channels",
                "Channels on a connection",
                lambda connection: len(connection.channels),
            ),
        ),
    ),
    "channel_metrics": Family(
        "channels",
        _gauges(
            (
                "channel_consumers",
                "Consumers on a channel",
                lambda channel: len(channel.consumers),
            ),
            (
                "channel_messages_unacked",
                "Delivered but not yet acknowledged messages",
                "messages_unacknowledged",
            ),
            (
                "channel_messages_unconfirmed",
                "Published but not yet confirmed messages",
                "messages_unconfirmed",
            ),
            (
                "channel_messages_uncommitted",
                "Messages received in a transaction but not yet committed",
                "messages_uncommitted",
            ),
            (
                "channel_acks_uncommitted",
                "Message acknowledgements in a transaction not yet committed",
                "acks_uncommitted",
            ),
            (
                "consumer_prefetch",
                "Limit of unacknowledged messages for each consumer",
                "prefetch_count",
            ),
            (
                "channel_prefetch",
                "Total limit of unacknowledged messages for all consumers on a channel",
                "global_prefetch_count",
            ),
        ),
    ),
    "channel_exchange_metrics": Family(
        "channels",
        _counters(
            ("channel_messages_published", "Messages published on a channel", "#publish"),
            ("channel_messages_confirmed", "Messages confirmed on a channel", "#confirm"),
            ("channel_messages_nacked", "Publishes nacked on a channel", "refused"),
            (
                "channel_messages_unroutable_returned",
                "Messages returned to the publisher as unroutable",
                "#return_unroutable",
            ),
            (
                "channel_messages_unroutable_dropped",
                "Messages dropped as unroutable",
                "#drop_unroutable",
            ),
        ),
    ),
    "channel_queue_metrics": Family(
        "channels",
        _counters(
            ("channel_get_ack", "Messages fetched with basic.get, to be acknowledged", "#get"),
            (
                "channel_get",
                "Messages fetched with basic.get in automatic acknowledgement mode",
                "#get_no_ack",
            ),
            (
                "channel_messages_delivered_ack",
                "Messages delivered to consumers in manual acknowledgement mode",
                "#deliver",
            ),
            (
                "channel_messages_delivered",
                "Messages delivered to consumers in automatic acknowledgement mode",
                "#deliver_no_ack",
            ),
            ("channel_messages_redelivered", "Messages delivered once more", "#redeliver"),
            ("channel_messages_acked", "Messages acknowledged by consumers", "#ack"),
            ("channel_get_empty", "Times basic.get operations fetched no message", "#get_empty"),
        ),
    ),
}
"""RabbitMQ's families, by the names that `family=` takes."""

CLUSTER_FAMILIES: dict[str, Family] = {
    "vhost_status": Family(
        "virtual_hosts", _gauges(("vhost_status", "Whether a vhost is running", lambda _: 1))
    ),
    "exchange_names": Family(
        "exchanges",
        _gauges(("exchange_name", "Enumerates exchanges", lambda _: 1)),
    ),
}
"""Those that only `/metrics/detailed` has, with the prefix `rabbitmq_cluster_`."""


def family(found: Family, scope: Scope) -> Iterator[str]:
    """The metrics of a family, in short steps."""
    for row in found.rows:
        name = scope.prefix + row.name
        yield head(name, row.kind, row.text)
        value = row.value
        for labels, thing in getattr(scope, found.objects)():
            if not isinstance(value, str):
                found_value = value(thing) if _is_known(row, thing) else None
            elif value.startswith("#"):
                found_value = thing.counters().get(value[1:], 0)
            else:
                found_value = getattr(thing, value, None)
            yield line(name, found_value, labels) if found_value is not None else ""


def _is_known(row: Row, thing: Any) -> bool:
    """A stream has no messages in memory to be counted."""
    return not row.name.endswith(("_ram", "_ram_bytes")) or hasattr(thing, "messages_ram")


def queue_info(scope: Scope) -> Iterator[str]:
    """RabbitMQ's metric with a constant 1 and labels that say what a queue is."""
    name = f"{scope.prefix}queue_info"
    yield head(name, "gauge", "A metric with a constant 1 and labels that tell of a queue")
    for labels, queue in scope.queues():
        kind = QUEUE_TYPES.get(queue.type, queue.type)
        yield line(name, 1, {**labels, "queue_type": kind, "membership": "leader"})


def losses(scope: Scope) -> Iterator[str]:
    """Why messages left a queue without an ack, and publishes that it refused. Only reasons that
    happened have a line."""
    removed, refused = (
        f"{scope.prefix}queue_messages_{word}_total" for word in ("removed", "refused")
    )
    yield head(removed, "counter", "Messages that left a queue without an acknowledgement")
    for labels, queue in scope.queues():
        counts = counts_of(queue)
        for reason in REASONS:
            for way in ("given_up", "lettered"):
                count = counts.get(f"{way}.{reason}", 0)
                if count:
                    more = {"reason": reason, "dead_lettered": str(way == "lettered").lower()}
                    yield line(removed, count, {**labels, **more})
        yield ""
    yield head(refused, "counter", "Publishes that a queue refused")
    for labels, queue in scope.queues():
        count = getattr(queue, "refused", 0)
        yield line(refused, count, {**labels, "reason": "maxlen"}) if count else ""


def per_object(broker: Any) -> Iterator[str]:
    """A line for each figure of each queue, exchange, connection and channel."""
    scope = Scope(broker)
    for name, found in FAMILIES.items():
        if name != "queue_consumer_count":
            yield from family(found, scope)
    yield from queue_info(scope)
    yield from losses(scope)
    yield from _joints(broker)


def detailed(scope: Scope, wanted: frozenset[str]) -> Iterator[str]:
    """The families that are asked for; unknown ones are passed over, as RabbitMQ does."""
    shown: set[Row] = set()
    for name, found in FAMILIES.items():
        if name in wanted:
            yield from family(
                found._replace(rows=tuple(row for row in found.rows if row not in shown)), scope
            )
            shown.update(found.rows)
    for name, found in CLUSTER_FAMILIES.items():
        if name in wanted:
            yield from family(found, scope._replace(prefix="cluster_"))
    if "exchange_bindings" in wanted:
        yield from _bindings(scope._replace(prefix="cluster_"))
    if "queue_delivery_metrics" in wanted:
        yield from losses(scope)
    if wanted & {"queue_coarse_metrics", "queue_consumer_count", "queue_metrics"}:
        yield from queue_info(scope)


def _bindings(scope: Scope) -> Iterator[str]:
    name = f"{scope.prefix}exchange_bindings"
    yield head(name, "gauge", "Number of bindings for an exchange")
    for vhost in scope.all_vhosts():
        counts = dict.fromkeys(vhost.exchanges, 0)
        for binding in vhost.bindings():
            if binding.source in counts:
                counts[binding.source] += 1
            yield ""
        for exchange, count in counts.items():
            labels = {"vhost": vhost.name, "exchange": exchange or "amq.default"}
            kind = getattr(vhost.exchanges.get(exchange), "type", "")
            yield line(name, count, {**labels, "type": kind})


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
