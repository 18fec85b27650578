"""Verbs about the node: whoami, overview, nodes, history and health checks."""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Mapping
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.queues import types as queue_types
from broker.routing.types import TYPES
from broker.schema.control_schema import RABBITMQ_VERSION as RABBITMQ_VERSION
from broker.schema.control_schema import (
    Nodes,
    Overview,
    Settings,
    StatisticsReset,
    Types,
    Whoami,
)
from broker.server.control.figures import added, details, message_stats
from broker.server.control.health_verbs import all_listeners
from broker.server.control.history_verbs import history_of
from broker.server.control.past import aged
from broker.server.control.problems import summary, waits
from broker.server.control.requests import Caller, Request, handles
from broker.server.control.views import name_of
from broker.server.limited import limit_figures
from broker.server.pace import Pace
from broker.settings.config import settings
from broker.stats import Sample, Series, Stats, Totals
from broker.stats.sampler import CHURN, MESSAGE_COUNTERS
from broker.store.bodies.figures import body_figures
from broker.store.commit.sync_method import ALL, EACH

if TYPE_CHECKING:
    from broker.server.app import Broker

RATES_MODE = "detailed"
"""RabbitMQ's word for rates by publisher, exchange and queue, which single objects show."""

_MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL")
"""EXTERNAL needs the certificate of a client."""


@handles("whoami")
async def whoami(request: Request[Whoami]) -> Any:
    user = request.caller.user
    tags = list(user.tags) if user is not None else ["administrator"]
    return {"name": request.caller.name, "tags": tags, "is_internal_user": True}


@handles("types")
async def types(request: Request[Types]) -> Any:
    return {"exchange": [*TYPES], "queue": [*queue_types.TYPES]}


@handles("overview")
async def overview(request: Request[Overview]) -> Any:
    args, broker, caller = request.args, request.broker, request.caller
    if args.vhost is not None:
        caller.vhost(args.vhost)
    if args.disable_stats:
        return await _without_figures(broker, caller, args.vhost)
    answer = await overview_of(broker, caller, args.vhost, args.ages)
    if caller.sight.of_node:
        listeners = await all_listeners(broker)
        answer["listeners"] = [{**row, "socket_opts": {}} for row in listeners]
    return answer


async def overview_of(
    broker: Broker, caller: Caller, vhost: str | None, ages: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """RabbitMQ's overview and what Leveret adds to it."""
    totals = totals_for(broker, caller, vhost)
    now = broker.stats.sampled_at
    ages = await aged(ages, totals.series, partial(_past, broker, caller, vhost), totals.counters)
    lengths = ages.get("lengths")
    ready = int(totals.levels["messages_ready"])
    unacked = int(totals.levels["messages_unacknowledged"])
    ready_details = details("messages_ready", totals, lengths, now)
    unacked_details = details("messages_unacknowledged", totals, lengths, now)
    churn: dict[str, Any] = {}
    for name in CHURN:
        churn[name] = int(totals.counters[name])
        churn[f"{name}_details"] = details(name, totals, ages.get("msg_rates"), now)
    return {
        **_identity(broker),
        "cluster_tags": [],
        "node_tags": [],
        "is_op_policy_updating_enabled": False,
        "message_stats": message_stats(MESSAGE_COUNTERS, totals.counters, totals, ages, now),
        "churn_rates": churn,
        "queue_totals": {
            "messages": ready + unacked,
            "messages_details": added(ready_details, unacked_details),
            "messages_ready": ready,
            "messages_ready_details": ready_details,
            "messages_unacknowledged": unacked,
            "messages_unacknowledged_details": unacked_details,
            "message_bytes": int(totals.levels["message_bytes"]),
        },
        "object_totals": {
            **{
                name: int(totals.levels[name])
                for name in ("connections", "channels", "exchanges", "queues", "consumers")
            },
            **({} if caller.sight.of_node else await _own_connections(broker, caller, vhost)),
        },
        "statistics_db_event_queue": 0,
        "listeners": [],
        "contexts": [],
        "started_at": broker.started_at_ms,
        "at": now,
        **await summary(broker, caller, vhost),
    }


def _identity(broker: Broker) -> dict[str, Any]:
    """What does not change: versions, names, and what statistics there are."""
    return {
        "management_version": RABBITMQ_VERSION,
        "rates_mode": RATES_MODE,
        "sample_retention_policies": {
            "global": [900, 3600, 86400, 604800],
            "basic": [3600],
            "detailed": [3600],
        },
        "exchange_types": [{"name": name, "description": "", "enabled": True} for name in TYPES],
        "product_version": version(),
        "product_name": "Leveret",
        "rabbitmq_version": RABBITMQ_VERSION,
        "cluster_name": broker.access.global_parameters.get("cluster_name", broker.node_name),
        "erlang_version": platform.python_version(),
        "erlang_full_version": f"Python {platform.python_version()}",
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "node": broker.node_name,
    }


async def _without_figures(broker: Broker, caller: Caller, vhost: str | None) -> dict[str, Any]:
    """The overview of a client that asks for no statistics."""
    totals = totals_for(broker, caller, vhost)
    counts = {name: int(totals.levels[name]) for name in ("connections", "exchanges", "queues")}
    if not caller.sight.of_node:
        counts["connections"] = (await _own_connections(broker, caller, vhost))["connections"]
    return {**_identity(broker), "disable_stats": True, "object_totals": counts}


async def _own_connections(broker: Broker, caller: Caller, vhost: str | None) -> dict[str, int]:
    """A user who may not see the connections of others gets the count of those it may list."""
    pace = Pace()
    connections = channels = 0
    for connection in list(broker.connections.values()):
        if name_of(connection.user) == caller.name and vhost in (None, name_of(connection.vhost)):
            connections += 1
            channels += len(connection.channels)
        await pace()
    return {"connections": connections, "channels": channels}


def _mechanisms(broker: Broker) -> tuple[str, ...]:
    # EXTERNAL needs the certificate of a client.
    external = ("EXTERNAL",) if broker.certificates.verifies_clients else ()
    return ("PLAIN", "AMQPLAIN", *external)


@handles("nodes")
async def nodes(request: Request[Nodes]) -> Any:
    broker, ages = request.broker, request.args.ages
    reading, watch = broker.sampling.node, broker.watch
    totals, now = broker.stats.node, broker.stats.sampled_at
    running = not broker.service.stopped
    node: dict[str, Any] = {"name": broker.node_name, "type": "disc", "running": running}
    if request.args.disable_stats:
        return [node]
    node |= {
        **_service_of(broker),
        "os_pid": str(os.getpid()),
        "uptime": now - broker.started_at_ms if now else 0,
        "processors": reading.processors,
        "mem_used": watch.reading.mem_used,
        "mem_limit": watch.memory_watermark,
        "mem_total": reading.mem_limit,
        "mem_alarm": "memory" in watch.active,
        "mem_calculation_strategy": "rss",
        "disk_free": watch.reading.disk_free,
        "disk_free_limit": watch.disk_limit,
        "disk_free_alarm": "disk" in watch.active,
        "disk_total": reading.disk_total,
        "fd_used": reading.fd_used,
        "fd_total": reading.fd_total,
        "sockets_used": broker.admission.sockets,
        "sockets_total": broker.admission.limit,
        **process_of(broker),
        "cpu_used": round(broker.sampling.cpu_rate, 4),
        "load_average": reading.load_average,
        "rates_mode": RATES_MODE,
        "enabled_plugins": ["rabbitmq_management"],
        "auth_mechanisms": [
            {"name": name, "description": "", "enabled": True} for name in _mechanisms(broker)
        ],
        "exchange_types": [{"name": name, "description": "", "enabled": True} for name in TYPES],
        "applications": [{"name": "leveret", "description": "", "version": version()}],
        "contexts": [],
        "partitions": [],
        "cluster_links": [],
        "config_files": [],
        "log_files": [],
        "db_dir": str(broker.config.data_dir),
        "appliance_id": broker.identities.appliance,
        "node_id": broker.identities.node,
        **waits(broker),
        "disk_stalled_s": round(broker.stall.seconds, 3),
        "reads_failed": broker.persister.failed_reads.count,
        "no_sync": bool(broker.config.no_sync),
        **storage_of(broker),
        **{figure.name: figure.value for figure in limit_figures(broker)},
    }
    for name in ("mem_used", "disk_free", "fd_used"):
        node[f"{name}_details"] = details(name, totals, ages.get("node_stats"), now)
    for name in CHURN:
        node[name] = int(totals.counters[name])
        node[f"{name}_details"] = details(name, totals, ages.get("node_stats"), now)
    return [node]


def _service_of(broker: Broker) -> dict[str, Any]:
    """What an operator has switched off or changed until the next start."""
    return {
        "being_drained": broker.service.drained,
        "listeners_suspended": broker.service.suspended,
        "service": broker.service.text,
        "overrides": broker.overrides.rows(),
    }


def process_of(broker: Broker) -> dict[str, Any]:
    """What the process did, under RabbitMQ's names: threads stand for Erlang's processes."""
    persister, used = broker.persister, resource.getrusage(resource.RUSAGE_SELF)
    threads_max, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    facts: dict[str, Any] = {
        "proc_used": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "gc_num": sum(each["collections"] for each in gc.get_stats()),
        "io_sync_count": persister.syncs,
        "io_write_count": persister.segment_writes,
        "io_write_bytes": persister.bytes_written,
        "io_read_count": persister.reads,
    }
    if threads_max != resource.RLIM_INFINITY:
        facts["proc_total"] = threads_max
    if persister.sync_times:
        times = persister.sync_times
        facts["io_sync_avg_time"] = round(1000 * sum(times) / len(times), 3)
    return facts


def storage_of(broker: Broker) -> dict[str, Any]:
    """How the disk is used, and what on it could not be read."""
    persister = broker.persister
    method = persister.sync_method
    return {
        "sync_method": {
            "setting": method.setting,
            "each_file_rounds": method.rounds[EACH],
            "file_system_rounds": method.rounds[ALL],
            "crossover_files": method.crossover,
        },
        "hole_punching": persister.background.makes_holes,
        "recovery_problems": list(broker.problems),
        "quarantine_count": persister.quarantine.count,
        "quarantine": persister.quarantine.entries[::-1],
        "tiers": broker.tiers.figures() if broker.tiers is not None else None,
        **message_store_of(broker),
    }


def message_store_of(broker: Broker) -> dict[str, Any]:
    """What the shared bodies do, and beside it RabbitMQ's counters of a node's storage: its message
    store is that of the shared bodies, its queue index the segments of queues and streams."""
    persister = broker.persister
    bodies = body_figures(
        (vhost.bodies for vhost in broker.vhosts.values()), broker.config.message_store_index
    )
    return {
        "msg_store_read_count": bodies["in_flight_misses"],
        "msg_store_write_count": bodies["written"],
        "queue_index_read_count": persister.segment_reads,
        "queue_index_write_count": persister.segment_writes,
        "msg_store": {"embed_below": broker.config.embed_below, **bodies},
    }


@handles("statistics.reset")
async def statistics_reset(request: Request[StatisticsReset]) -> Any:
    request.broker.stats.reset()
    return {}


@handles("settings")
async def settings_of(request: Request[Settings]) -> Any:
    config = request.broker.config
    return {
        item.name: _plain(item.public(getattr(config, item.name)))
        for item in settings()
        if not item.secret
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, int | float | str | None) else str(value)


async def _past(
    broker: Broker, caller: Caller, vhost: str | None, from_ms: int, to_ms: int
) -> dict[str, Any]:
    key = [vhost] if vhost is not None else []
    return await history_of(broker, caller, "overview", key, from_ms, to_ms)


class _MergedSeries(Series):
    """The samples of several vhosts, added up."""

    def __init__(self, parts: list[Series]) -> None:
        super().__init__((), (), ())
        self._parts = parts

    def samples(self, name: str, now: int, age_s: int, increment_s: int) -> list[Sample]:
        columns = [part.samples(name, now, age_s, increment_s) for part in self._parts]
        return [
            Sample(row[0].timestamp, sum(one.sample for one in row))
            for row in zip(*columns, strict=True)
        ]


class Merged(Totals):
    """The totals of several vhosts, for who sees only those."""

    def __init__(self, parts: list[Totals]) -> None:
        super().__init__(())
        self._parts = parts
        self.series = _MergedSeries([part.series for part in parts])
        for name in self.counters:
            self.counters[name] = sum(part.counters[name] for part in parts)
        for name in self.levels:
            self.levels[name] = sum(part.levels[name] for part in parts)

    def rate(self, name: str) -> float:
        return round(sum(part.rate(name) for part in self._parts), 3)


def totals_for(broker: Broker, caller: Caller, vhost: str | None) -> Totals:
    """What the caller may add up: everything, one vhost, or the vhosts of its own."""
    stats: Stats = broker.stats
    if vhost is not None:
        return stats.vhost(vhost)
    if caller.sight.of_node:
        return stats.node
    return Merged([stats.vhost(one.name) for one in caller.vhosts()])


@cache
def version() -> str:
    """Leveret's own version."""
    try:
        return str(metadata.version("leveret"))
    except metadata.PackageNotFoundError:
        return "0.1.0"
