"""What the pages of metrics say of the node: identity, machine, counters of everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.schema.control_schema import RABBITMQ_VERSION
from broker.server.control.node_verbs import version
from broker.server.limited import limit_figures
from broker.server.metrics.lines import head, histogram, line, metric
from broker.server.metrics.storage import storage_metrics
from broker.stats import Totals
from broker.store.files.waits import BOUNDS
from broker.wire.sizes import BOUNDS as SIZE_BOUNDS
from broker.wire.sizes import message_sizes

if TYPE_CHECKING:
    from broker.server.app import Broker

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
OBJECT_LEVELS = (
    ("connections", "Connections currently open", "connections"),
    ("channels", "Channels currently open", "channels"),
    ("consumers", "Consumers currently connected", "consumers"),
    ("queues", "Queues available", "queues"),
)
QUEUE_LEVELS = (
    ("queue_messages_ready", "Messages ready to be delivered to consumers", "messages_ready"),
    (
        "queue_messages_unacked",
        "Messages delivered to consumers but not yet acknowledged",
        "messages_unacknowledged",
    ),
)


def identity(broker: Broker, endpoint: str) -> str:
    """The metric that dashboards join the others with."""
    labels = {
        "rabbitmq_node": broker.node_name,
        "rabbitmq_cluster": str(
            broker.access.global_parameters.get("cluster_name", broker.node_name)
        ),
        "rabbitmq_cluster_permanent_id": broker.node_name,
        "rabbitmq_endpoint": endpoint,
    }
    return metric("identity_info", "untyped", "RabbitMQ node & cluster identity info", 1, labels)


def node_metrics(broker: Broker, endpoint: str) -> Iterator[str]:
    """What the pages begin with: identity, build, node and global counters."""
    totals: Totals = broker.stats.node
    reading, watch = broker.sampling.node, broker.watch
    yield identity(broker, endpoint)
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
        ("process_resident_memory_bytes", "Memory used in bytes", watch.reading.mem_used),
        ("resident_memory_limit_bytes", "Memory high watermark in bytes", watch.memory_watermark),
        ("disk_space_available_bytes", "Disk space available in bytes", watch.reading.disk_free),
        (
            "disk_space_available_limit_bytes",
            "Free disk space low watermark in bytes",
            watch.disk_limit,
        ),
        ("process_open_fds", "Open file descriptors", reading.fd_used),
        ("process_max_fds", "Open file descriptors limit", reading.fd_total),
        ("process_open_tcp_sockets", "Open TCP sockets", len(broker.connections)),
        ("process_max_tcp_sockets", "Open TCP sockets limit", reading.fd_total),
        ("erlang_uptime_seconds", "Node uptime", _uptime_s(broker)),
        (
            "alarms_memory_used_watermark",
            "is 1 if VM memory watermark alarm is in effect",
            int("memory" in watch.active),
        ),
        (
            "alarms_free_disk_space_watermark",
            "is 1 if free disk space watermark is in effect",
            int("disk" in watch.active),
        ),
        ("connections_blocked", "Connections whose publish waits for an alarm", watch.blocked),
        ("alarms_file_descriptor_limit", "is 1 if file descriptor limit alarm is in effect", 0),
    ):
        yield metric(name, "gauge", text, value)
    yield metric(
        "process_cpu_seconds_total",
        "counter",
        "Processor seconds used by the broker process",
        reading.cpu_seconds,
    )
    for name, of in (("disk_sync", "syncing a round to disk"), ("confirm", "a confirm")):
        level = name.removeprefix("disk_")
        for share in (50, 99):
            yield metric(
                f"{name}_p{share}_seconds",
                "gauge",
                f"{share}th percentile of the time that {of} takes",
                totals.levels[f"{level}_p{share}_ms"] / 1000,
            )
    yield metric(
        "disk_stalled_seconds",
        "gauge",
        "For how long the disk has not answered",
        broker.stall.seconds,
    )
    yield metric(
        "disk_reads_failed_total",
        "counter",
        "Reads of messages that the disk failed; each is tried again",
        broker.persister.failed_reads.count,
    )
    for figure in limit_figures(broker):
        name, kind = (
            (f"{figure.name}_total", "counter") if figure.counts else (figure.name, "gauge")
        )
        yield metric(name, kind, figure.text, figure.value)
    protocol = {"protocol": "amqp091"}
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
    yield from _latencies(broker)
    yield from storage_metrics(broker)
    yield from _attempts(broker)


NODE_FAMILIES: dict[str, frozenset[str]] = {
    "connection_churn_metrics": frozenset(name for name, _, _ in _CHURN),
    "node_coarse_metrics": frozenset(
        (
            "process_open_fds",
            "process_open_tcp_sockets",
            "process_resident_memory_bytes",
            "disk_space_available_bytes",
        )
    ),
    "node_metrics": frozenset(
        (
            "process_max_fds",
            "process_max_tcp_sockets",
            "resident_memory_limit_bytes",
            "disk_space_available_limit_bytes",
            "erlang_uptime_seconds",
        )
    ),
    "auth_attempt_metrics": frozenset(
        ("auth_attempts_total", "auth_attempts_succeeded_total", "auth_attempts_failed_total")
    ),
}
"""RabbitMQ's families of the node: which of its metrics."""


def node_families(broker: Broker, wanted: frozenset[str], prefix: str) -> Iterator[str]:
    """The families of the node that are asked for."""
    names: set[str] = set()
    for family in wanted & NODE_FAMILIES.keys():
        names |= NODE_FAMILIES[family]
    if not names:
        return
    is_wanted = False
    for text in node_metrics(broker, "detailed"):
        # A metric begins with its head; the samples that follow by themselves belong to it.
        if text.startswith("# TYPE "):
            is_wanted = text.split(" ", 3)[2].removeprefix("rabbitmq_") in names
        if is_wanted:
            yield text.replace("rabbitmq_", f"rabbitmq_{prefix}")


def object_levels(broker: Broker) -> Iterator[str]:
    """How many objects of each kind there are, which every page says."""
    levels = broker.stats.node.levels
    for name, text, level in OBJECT_LEVELS:
        yield metric(name, "gauge", text, levels[level])


def aggregated(broker: Broker) -> Iterator[str]:
    """The rest of `/metrics`: levels of everything together."""
    levels = broker.stats.node.levels
    for name, text, level in QUEUE_LEVELS:
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


def _latencies(broker: Broker) -> Iterator[str]:
    """Histograms: of rounds of the disk, of confirms, and of the sizes of messages."""
    persister = broker.persister
    for name, text, times in (
        ("disk_sync_seconds", "Time that syncing a round to disk took", persister.sync_times),
        (
            "confirm_seconds",
            "The longest time that a confirm of a round waited for it",
            persister.confirm_times,
        ),
    ):
        yield histogram(name, text, BOUNDS, times.counts, times.total)
    sizes, total = message_sizes()
    text = "Size of messages received from publishers"
    labels = {"protocol": "amqp091"}
    yield histogram("message_size_bytes", text, SIZE_BOUNDS, sizes, total, labels)


def _attempts(broker: Broker) -> Iterator[str]:
    counted: dict[str, list[int]] = {}
    for (protocol, _, _, ok), count in broker.access.attempts.items():
        counted.setdefault(protocol, [0, 0])[ok] += count
    protocols = [
        ("amqp091" if protocol == "amqp" else protocol, failed, succeeded)
        for protocol, (failed, succeeded) in counted.items()
    ]
    yield head("auth_attempts_total", "counter", "Total number of authorization attempts")
    for protocol, failed, succeeded in protocols:
        yield line("auth_attempts_total", failed + succeeded, {"protocol": protocol})
    text = "Total number of successful authentication attempts"
    yield head("auth_attempts_succeeded_total", "counter", text)
    for protocol, _, succeeded in protocols:
        yield line("auth_attempts_succeeded_total", succeeded, {"protocol": protocol})
    text = "Total number of failed authentication attempts"
    yield head("auth_attempts_failed_total", "counter", text)
    for protocol, failed, _ in protocols:
        yield line("auth_attempts_failed_total", failed, {"protocol": protocol})


def _uptime_s(broker: Broker) -> float:
    sampled_at = broker.stats.sampled_at
    return max(0.0, (sampled_at - broker.started_at_ms) / 1000) if sampled_at else 0.0
