"""RabbitMQ's families that only `/metrics/detailed` has, and that are no figures of single objects
of one kind: the store, logins by source, publishes by channel, queue and exchange, readers of
streams.

A family that has no figures here has its metrics' heads and no sample, as RabbitMQ's `ra_metrics`
without a quorum queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from broker.server.control.node_verbs import message_store_of, process_of
from broker.server.control.views import name_of
from broker.server.metrics.lines import head, line, metric
from broker.server.metrics.storage import store_operations

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.metrics.objects import Scope

_DISK = (
    ("io_read_ops_total", "Total number of I/O read operations", "io_read_count"),
    ("io_write_ops_total", "Total number of I/O write operations", "io_write_count"),
    ("io_write_bytes_total", "Total number of I/O bytes written", "io_write_bytes"),
    ("io_sync_ops_total", "Total number of I/O sync operations", "io_sync_count"),
)
"""Metric, help, key in the node's row."""

_ATTEMPTS = (
    ("auth_attempts_detailed_total", "Total number of authorization attempts", (True, False)),
    (
        "auth_attempts_detailed_succeeded_total",
        "Total number of successful authorization attempts",
        (True,),
    ),
    (
        "auth_attempts_detailed_failed_total",
        "Total number of failed authorization attempts",
        (False,),
    ),
)

_WITHOUT_FIGURES = {
    "channel_process_metrics": (
        ("channel_process_reductions_total", "counter", "Only Erlang's processes have reductions"),
    ),
    "queue_exchange_metrics": (
        (
            "queue_exchange_messages_published_total",
            "counter",
            "Not counted beyond the channel: see channel_queue_exchange_metrics",
        ),
    ),
    "ra_metrics": (
        ("raft_term_total", "counter", "One node has no Raft"),
        ("raft_log_snapshot_index", "gauge", "One node has no Raft"),
        ("raft_log_last_applied_index", "gauge", "One node has no Raft"),
        ("raft_log_commit_index", "gauge", "One node has no Raft"),
        ("raft_log_last_written_index", "gauge", "One node has no Raft"),
        ("raft_entry_commit_latency_seconds", "gauge", "One node has no Raft"),
    ),
}
"""Metric, kind, why there is no sample."""


def more_families(scope: Scope, wanted: frozenset[str]) -> Iterator[str]:
    """Those of these families that are asked for."""
    for name, build in _BUILT.items():
        if name in wanted:
            yield from build(scope)
    for name, metrics in _WITHOUT_FIGURES.items():
        if name in wanted:
            for one, kind, text in metrics:
                yield head(f"{scope.prefix}{one}", kind, text)


def _store(scope: Scope) -> Iterator[str]:
    broker: Broker = scope.broker
    figures = process_of(broker)
    for name, text, key in _DISK:
        yield metric(f"{scope.prefix}{name}", "counter", text, figures[key])
    yield from store_operations(message_store_of(broker), scope.prefix)
    yield metric(
        f"{scope.prefix}io_sync_time_seconds_total",
        "counter",
        "Total I/O sync time",
        broker.persister.sync_times.total,
    )


def _attempts(scope: Scope) -> Iterator[str]:
    """Who tried to log in is of no virtual host, so that a filter by virtual host changes
    nothing."""
    attempts = scope.broker.access.attempts
    for name, text, outcomes in _ATTEMPTS:
        yield head(f"{scope.prefix}{name}", "counter", f"{text} with source info")
        counts: Counter[tuple[str, str, str]] = Counter()
        for (origin, user, peer, ok), count in attempts.items():
            # Every metric has every source, also those with 0.
            counts[origin, user, peer] += count if ok in outcomes else 0
        for (origin, user, peer), count in counts.items():
            labels = {
                "remote_address": peer,
                "username": user,
                "protocol": "amqp091" if origin == "amqp" else origin,
            }
            known = {key: value for key, value in labels.items() if value}
            yield line(f"{scope.prefix}{name}", count, known)


def _routes(scope: Scope) -> Iterator[str]:
    """By channel that is open: what it published through an exchange into a queue."""
    name = f"{scope.prefix}queue_messages_published_total"
    yield head(name, "counter", "Total number of messages published to queues")
    for labels, channel in scope.channels():
        counts: Counter[tuple[str, str]] = Counter()
        for (exchange, targets), count in channel.published_to().items():
            for queue in targets:
                # What holds messages back, or answers a request, is no queue of a vhost.
                if hasattr(queue, "vhost_name") and not queue.deleted:
                    counts[name_of(queue) or "", exchange.name] += count
        for (queue_name, exchange_name), count in counts.items():
            if scope.matches is None or scope.matches(queue_name):
                found = {
                    "channel": labels["channel"],
                    "queue_vhost": labels["vhost"],
                    "queue": queue_name,
                    "exchange_vhost": labels["vhost"],
                    "exchange": exchange_name,
                }
                yield line(name, count, found)
        yield ""


def _stream_consumers(scope: Scope) -> Iterator[str]:
    """How far the consumer of a stream that is furthest behind is from its end."""
    name = f"{scope.prefix}stream_consumer_max_offset_lag"
    yield head(name, "gauge", "Current maximum of offset lag of consumers")
    for labels, queue in scope.queues():
        lags = [reader.lag for reader in queue.readers.all] if queue.type == "stream" else []
        yield line(name, max(lags), labels) if lags else ""


_BUILT: dict[str, Callable[[Scope], Iterator[str]]] = {
    "node_persister_metrics": _store,
    "auth_attempt_detailed_metrics": _attempts,
    "channel_queue_exchange_metrics": _routes,
    "stream_consumer_metrics": _stream_consumers,
}
