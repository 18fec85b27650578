"""RabbitMQ's families of metrics of single objects, and what each metric shows."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue


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


def _unless_all(name: str, queue: MessageQueue) -> float | None:
    """Of messages in memory: where all are or none is."""
    in_memory = queue.messages_ram
    total = queue.messages_ready + queue.messages_unacknowledged
    if in_memory not in (0, total):
        return None
    value: float = getattr(queue, name) if in_memory else 0
    return value


def _sent(name: str) -> Callable[[Any], float | None]:
    """What a connection counts of what it sends."""
    return attrgetter(f"output.{name}")


def _size(queue: MessageQueue) -> float:
    size: float = queue.message_bytes_ready + queue.message_bytes_unacknowledged
    return size


def _size_in_memory(queue: MessageQueue) -> float | None:
    ready = _unless_all("message_bytes_ready", queue)
    if ready is None:
        return None
    return _size(queue) if queue.messages_ram else ready


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
            (
                "connection_outgoing_bytes",
                "Total number of bytes sent on a connection",
                _sent("send_oct"),
            ),
        ),
    ),
    "connection_metrics": Family(
        "connections",
        _counters(
            ("connection_incoming_packets", "Frames received on a connection", "recv_cnt"),
            ("connection_outgoing_packets", "Writes to a connection", _sent("send_cnt")),
        )
        + _gauges(
            (
                "connection_pending_bytes",
                "Bytes that wait to be sent on a connection",
                _sent("send_pend"),
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
                lambda channel: len(channel.deliveries.consumers),
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
