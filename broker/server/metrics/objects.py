"""Metrics of single objects: families of them under RabbitMQ's names.

`/metrics/per-object` has all, `/metrics/detailed` those that are asked for, with the prefix
`rabbitmq_detailed_`. What is not known of an object has no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.kernel.through import Through
from broker.server.control.views import channel_name, name_of
from broker.server.metrics.families import CLUSTER_FAMILIES, FAMILIES, Family, Row
from broker.server.metrics.lines import head, line
from broker.server.metrics.sums import QUEUE_TYPES, REASONS
from broker.stats.ended import counts_of

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.server.app import Broker

Labels = dict[str, str]


class Scope(NamedTuple):
    """Which objects are shown."""

    broker: Broker
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
            for queue in Through(vhost.queues.values()):
                if self.matches is None or self.matches(queue.name):
                    yield {"vhost": vhost.name, "queue": queue.name}, queue

    def exchanges(self) -> Iterator[tuple[Labels, Any]]:
        for vhost in self.all_vhosts():
            for exchange in Through(vhost.exchanges.values()):
                yield {"vhost": vhost.name, "exchange": exchange.name or "amq.default"}, exchange

    def connections(self) -> Iterator[tuple[Labels, Any]]:
        for connection in Through(self.broker.connections.values()):
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
        count = queue.refused
        yield line(refused, count, {**labels, "reason": "maxlen"}) if count else ""


def per_object(broker: Broker) -> Iterator[str]:
    """A line for each figure of each queue, exchange, connection and channel."""
    scope = Scope(broker)
    for name, found in FAMILIES.items():
        if name != "queue_consumer_count":
            yield from family(found, scope)
    yield from queue_info(scope)
    yield from losses(scope)
    yield from _of_features(broker)


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


def _of_features(broker: Broker) -> Iterator[str]:
    """What add-ons count at queues and exchanges, in the words of their rows in the API."""
    found: dict[str, list[str]] = {}
    for vhost in list(broker.vhosts.values()):
        objects: tuple[tuple[str, Through[MessageQueue] | Through[BoundExchange]], ...] = (
            ("queue", Through(vhost.queues.values())),
            ("exchange", Through(vhost.exchanges.values())),
        )
        for kind, things in objects:
            for thing in things:
                labels = {"vhost": vhost.name, kind: thing.name}
                for feature in (getattr(thing, name, None) for name in ("holding", "duplicates")):
                    if feature is not None:
                        _add_feature(found, kind, feature, labels)
                yield ""
    for lines in found.values():
        yield from lines


def _add_feature(
    found: dict[str, list[str]], kind: str, feature: Any, labels: dict[str, str]
) -> None:
    counters = feature.counters()
    for counter, value in counters.items():
        name = f"{kind}_messages_{counter}_total"
        lines = found.setdefault(name, [head(name, "counter", f"Messages counted as {counter}")])
        lines.append(line(name, value, labels))
    for fact, value in feature.facts().items():
        if fact.removesuffix("_count") not in counters:
            name = f"{kind}_{fact}"
            text = f"The field {fact} of its row in the API"
            found.setdefault(name, [head(name, "gauge", text)]).append(line(name, value, labels))
