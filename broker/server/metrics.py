"""Prometheus metrics under the names of RabbitMQ's exporter, so that its dashboards just work.

`/metrics` adds up, `/metrics/per-object` has a line per queue, exchange, connection and channel.
Text format 0.0.4. Counters never go down when an object goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from broker.server.control.encoding import Pace
from broker.server.control.node_verbs import RABBITMQ_VERSION, version
from broker.server.control.views import channel_name, name_of
from broker.stats.gauges import CHANNEL_COUNTERS
from broker.stats.sampler import Totals

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HEAD_MAX = 16 * 1024
_HEAD_WITHIN_S = 10.0
_CONNECTIONS_MAX = 64

# Metric, help, counter of the totals; with label protocol="amqp091".
_GLOBAL = (
    ("messages_received_total", "Total number of messages received from publishers", "publish"),
    ("messages_confirmed_total", "Total number of messages confirmed to publishers", "confirm"),
    (
        "messages_unroutable_dropped_total",
        "Total number of messages published as non-mandatory into an exchange and dropped as "
        "unroutable",
        "drop_unroutable",
    ),
    (
        "messages_unroutable_returned_total",
        "Total number of messages published as mandatory into an exchange and returned to the "
        "publisher as unroutable",
        "return_unroutable",
    ),
)
# The same with label queue_type too.
_GLOBAL_QUEUES = (
    (
        "messages_delivered_consume_auto_ack_total",
        "Total number of messages delivered to consumers using basic.consume with automatic "
        "acknowledgment",
        "deliver_no_ack",
    ),
    (
        "messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers using basic.consume with manual "
        "acknowledgment",
        "deliver",
    ),
    (
        "messages_delivered_get_auto_ack_total",
        "Total number of messages delivered to consumers using basic.get with automatic "
        "acknowledgment",
        "get_no_ack",
    ),
    (
        "messages_delivered_get_manual_ack_total",
        "Total number of messages delivered to consumers using basic.get with manual "
        "acknowledgment",
        "get",
    ),
    (
        "messages_get_empty_total",
        "Total number of times basic.get operations fetched no message",
        "get_empty",
    ),
    (
        "messages_redelivered_total",
        "Total number of messages redelivered to consumers",
        "redeliver",
    ),
    (
        "messages_acknowledged_total",
        "Total number of message acknowledgements received from consumers",
        "ack",
    ),
)
_CHURN = (
    ("connections_opened_total", "Total number of connections opened", "connection_created"),
    (
        "connections_closed_total",
        "Total number of connections closed or terminated",
        "connection_closed",
    ),
    ("channels_opened_total", "Total number of channels opened", "channel_created"),
    ("channels_closed_total", "Total number of channels closed", "channel_closed"),
    ("queues_declared_total", "Total number of queues declared", "queue_declared"),
    ("queues_created_total", "Total number of queues created", "queue_created"),
    ("queues_deleted_total", "Total number of queues deleted", "queue_deleted"),
)
_TOTALS = (
    ("connections", "Connections currently open", "connections"),
    ("channels", "Channels currently open", "channels"),
    ("consumers", "Consumers currently connected", "consumers"),
    ("queues", "Queues available", "queues"),
)
_QUEUE_LEVELS = (
    ("queue_messages_ready", "Messages ready to be delivered to consumers", "messages_ready"),
    (
        "queue_messages_unacked",
        "Messages delivered to consumers but not yet acknowledged",
        "messages_unacknowledged",
    ),
)
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


def escape(value: str) -> str:
    """A label value as the text format wants it; what is no UTF-8 becomes U+FFFD."""
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def line(name: str, value: float, labels: Mapping[str, str] | None = None) -> str:
    """One sample."""
    text = ",".join(f'{key}="{escape(label)}"' for key, label in (labels or {}).items())
    number = int(value) if float(value).is_integer() else value
    return f"rabbitmq_{name}{{{text}}} {number}\n" if text else f"rabbitmq_{name} {number}\n"


def head(name: str, kind: str, text: str) -> str:
    """The two comment lines before the samples of a metric."""
    return f"# TYPE rabbitmq_{name} {kind}\n# HELP rabbitmq_{name} {text}\n"


def metric(
    name: str, kind: str, text: str, value: float, labels: Mapping[str, str] | None = None
) -> str:
    return head(name, kind, text) + line(name, value, labels)


def node_metrics(broker: Any) -> Iterator[str]:
    """What both pages begin with: identity, build, node and global counters."""
    totals: Totals = broker.stats.node
    reading = broker.sampling.node
    cluster = str(broker.access.global_parameters.get("cluster_name", broker.node_name))
    identity = {
        "rabbitmq_node": broker.node_name,
        "rabbitmq_cluster": cluster,
        "rabbitmq_cluster_permanent_id": broker.node_name,
        "rabbitmq_endpoint": "aggregated",
    }
    yield metric("identity_info", "untyped", "RabbitMQ node & cluster identity info", 1, identity)
    build = {
        "rabbitmq_version": RABBITMQ_VERSION,
        "prometheus_plugin_version": RABBITMQ_VERSION,
        "prometheus_client_version": "0.0.4",
        "erlang_version": "0",
        "product_name": "Leveret",
        "product_version": version(),
    }
    yield metric("build_info", "untyped", "RabbitMQ & Erlang/OTP version info", 1, build)
    for name, text, value in (
        ("process_resident_memory_bytes", "Memory used in bytes", reading.mem_used),
        ("resident_memory_limit_bytes", "Memory of the machine in bytes", reading.mem_limit),
        ("disk_space_available_bytes", "Disk space available in bytes", reading.disk_free),
        ("disk_space_available_limit_bytes", "Free disk space low watermark in bytes", 0),
        ("process_open_fds", "Open file descriptors", reading.fd_used),
        ("process_max_fds", "Open file descriptors limit", reading.fd_total),
        ("process_open_tcp_sockets", "Open TCP sockets", len(broker.connections)),
        ("process_max_tcp_sockets", "Open TCP sockets limit", reading.fd_total),
        ("erlang_uptime_seconds", "Node uptime", _uptime_s(broker)),
        ("alarms_memory_used_watermark", "is 1 if VM memory watermark alarm is in effect", 0),
        ("alarms_free_disk_space_watermark", "is 1 if free disk space watermark is in effect", 0),
        ("alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect", 0),
    ):
        yield metric(name, "gauge", text, value)
    yield metric(
        "process_cpu_seconds_total",
        "counter",
        "Processor seconds used by the broker process",
        reading.cpu_seconds,
    )
    yield metric(
        "disk_sync_p99_seconds",
        "gauge",
        "99th percentile of the time one sync to disk takes",
        totals.levels["sync_p99_ms"] / 1000,
    )
    protocol = {"protocol": "amqp091"}
    queue_type = {**protocol, "queue_type": "rabbit_classic_queue"}
    counters = totals.counters
    for name, text, counter in _GLOBAL:
        yield metric(f"global_{name}", "counter", text, counters[counter], protocol)
    yield metric(
        "global_messages_received_confirm_total",
        "counter",
        "Total number of messages received from publishers using publisher confirms",
        counters["confirm"],
        protocol,
    )
    routed = counters["publish"] - counters["drop_unroutable"] - counters["return_unroutable"]
    yield metric(
        "global_messages_routed_total",
        "counter",
        "Total number of messages routed to queues or streams",
        max(0, routed),
        protocol,
    )
    for name, text, counter in _GLOBAL_QUEUES:
        yield metric(f"global_{name}", "counter", text, counters[counter], queue_type)
    delivered = sum(counters[name] for name in ("deliver", "deliver_no_ack", "get", "get_no_ack"))
    yield metric(
        "global_messages_delivered_total",
        "counter",
        "Total number of messages delivered to consumers",
        delivered,
        queue_type,
    )
    publishers = sum(
        1
        for connection in broker.connections.values()
        for channel in connection.channels.values()
        if channel.published
    )
    yield metric(
        "global_publishers", "gauge", "Publishers currently connected", publishers, protocol
    )
    yield metric(
        "global_consumers",
        "gauge",
        "Consumers currently connected",
        totals.levels["consumers"],
        protocol,
    )
    for name, text, counter in _CHURN:
        yield metric(name, "counter", text, counters[counter])
    for name, text, counter in (
        ("connection_incoming_bytes_total", "Total number of bytes received", "recv_oct"),
        ("connection_outgoing_bytes_total", "Total number of bytes sent", "send_oct"),
    ):
        yield metric(f"global_{name}", "counter", text, counters[counter])
    yield from _attempts(broker)


def aggregated(broker: Any) -> Iterator[str]:
    """The rest of `/metrics`: levels of everything together."""
    levels = broker.stats.node.levels
    for name, text, level in (*_TOTALS, *_QUEUE_LEVELS):
        yield metric(name, "gauge", text, levels[level])
    ready, unacked = levels["messages_ready"], levels["messages_unacknowledged"]
    yield metric(
        "queue_messages", "gauge", "Sum of ready and unacknowledged messages", ready + unacked
    )
    yield metric(
        "queue_messages_bytes",
        "gauge",
        "Size in bytes of ready and unacknowledged messages",
        levels["message_bytes"],
    )
    yield metric("queue_consumers", "gauge", "Consumers on a queue", levels["consumers"])


def per_object(broker: Any) -> Iterator[str]:
    """The rest of `/metrics/per-object`: a line per object, in short steps."""
    levels = broker.stats.node.levels
    for name, text, level in _TOTALS:
        yield metric(name, "gauge", text, levels[level])
    yield from _queues(broker)
    yield from _exchanges(broker)
    yield from _connections(broker)
    yield from _channels(broker)


def _queues(broker: Any) -> Iterator[str]:
    for name, text, value in (
        ("queue_messages_ready", _QUEUE_LEVELS[0][1], lambda queue: queue.messages_ready),
        (
            "queue_messages_unacked",
            _QUEUE_LEVELS[1][1],
            lambda queue: queue.messages_unacknowledged,
        ),
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
    ):
        yield head(name, "gauge", text)
        for vhost in list(broker.vhosts.values()):
            for queue in list(vhost.queues.values()):
                labels = {"vhost": vhost.name, "queue": queue.name}
                yield line(name, value(queue), labels)


def _exchanges(broker: Any) -> Iterator[str]:
    for name, text, field in (
        (
            "exchange_messages_published_in_total",
            "Messages published into an exchange",
            "publish_in",
        ),
        (
            "exchange_messages_published_out_total",
            "Messages published from an exchange",
            "publish_out",
        ),
    ):
        yield head(name, "counter", text)
        for vhost in list(broker.vhosts.values()):
            for exchange in list(vhost.exchanges.values()):
                labels = {"vhost": vhost.name, "exchange": exchange.name or "amq.default"}
                yield line(name, getattr(exchange, field), labels)


def _connections(broker: Any) -> Iterator[str]:
    for name, kind, text, value in (
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
    ):
        yield head(name, kind, text)
        for connection in list(broker.connections.values()):
            labels = {
                "connection": connection.name,
                "vhost": name_of(connection.vhost) or "",
                "user": name_of(connection.user) or "",
            }
            yield line(name, value(connection), labels)


def _channels(broker: Any) -> Iterator[str]:
    for counter in CHANNEL_COUNTERS:
        if counter not in _CHANNEL_METRICS:
            continue
        name = f"channel_{_CHANNEL_METRICS[counter]}"
        yield head(name, "counter", f"Messages counted as {counter} on a channel")
        for connection in list(broker.connections.values()):
            for channel in list(connection.channels.values()):
                labels = {
                    "channel": channel_name(channel),
                    "vhost": name_of(connection.vhost) or "",
                    "user": name_of(connection.user) or "",
                }
                yield line(name, channel.counters().get(counter, 0), labels)


def _attempts(broker: Any) -> Iterator[str]:
    counted: dict[str, list[int]] = {}
    for (door, _, _, ok), count in broker.access.attempts.items():
        counted.setdefault(door, [0, 0])[ok] += count
    doors = [("amqp091" if door == "amqp" else door, *pair) for door, pair in counted.items()]
    yield head("auth_attempts_total", "counter", "Total number of authorization attempts")
    for door, failed, succeeded in doors:
        yield line("auth_attempts_total", failed + succeeded, {"protocol": door})
    text = "Total number of successful authentication attempts"
    yield head("auth_attempts_succeeded_total", "counter", text)
    for door, _, succeeded in doors:
        yield line("auth_attempts_succeeded_total", succeeded, {"protocol": door})
    text = "Total number of failed authentication attempts"
    yield head("auth_attempts_failed_total", "counter", text)
    for door, failed, _ in doors:
        yield line("auth_attempts_failed_total", failed, {"protocol": door})


def _uptime_s(broker: Any) -> float:
    sampled_at = broker.stats.sampled_at
    return max(0.0, (sampled_at - broker.started_at_ms) / 1000) if sampled_at else 0.0


class MetricsServer:
    """A small HTTP server for scrapers: GET of the two pages, no authentication."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the actual port. `port` 0 is any free one. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_MAX)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _CONNECTIONS_MAX:
                await self._answer(reader, writer)
        except (OSError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception:
            log.exception("a scrape of the metrics failed")
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_WITHIN_S):
                request = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].rstrip(b"/")
        pages = {
            b"/metrics": aggregated,
            b"/metrics/per-object": per_object,
        }
        if method not in (b"GET", b"HEAD"):
            await _reply(writer, "405 Method Not Allowed", b"", "Allow: GET, HEAD\r\n")
        elif path not in pages:
            await _reply(writer, "404 Not Found", b"metrics are at /metrics\n")
        else:
            body = await self._page(pages[path])
            await _reply(writer, "200 OK", b"" if method == b"HEAD" else body)

    async def _page(self, page: Any) -> bytes:
        pace = Pace()
        parts = []
        for lines in (node_metrics(self._broker), page(self._broker)):
            for text in lines:
                parts.append(text)
                await pace()
        return "".join(parts).encode("utf-8", "replace")


async def _reply(writer: asyncio.StreamWriter, status: str, body: bytes, headers: str = "") -> None:
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        f"{headers}\r\n".encode("ascii")
    )
    writer.write(body)
    with contextlib.suppress(ConnectionError):
        await writer.drain()
