"""The fields of a queue's row, by name: how each is read of a queue by itself.

One table for whole rows, for the columns that a client chose, and for sorting by any of them: a
list of 10,000 queues reads one field of each, and builds the rows of its page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.schema.columns import value_at
from broker.server.control import troubles
from broker.server.control.figures import Ages, added, counters_in, details, message_stats
from broker.server.control.picking import AsText
from broker.server.control.policy_rows import governed
from broker.server.control.views import View, idle_facts
from broker.stats import Gauge
from broker.stats.gauges import DELIVERING, QUEUE_COUNTERS
from broker.stats.reading import Fields, rates

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue

Read = Callable[[Any], Any]

LEAN = ("name", "vhost", "durable", "auto_delete", "exclusive", "arguments", "type")
"""What a row without figures has of the table, besides its node and state."""

LEVELS = ("messages_ready", "messages_unacknowledged")
TOTALS = ("messages", *LEVELS)


def refuse_rate(queue: MessageQueue) -> float:
    """Publishes that the full queue refused, a second."""
    return queue.refusals.rate if queue.refusals is not None else 0.0


def _net_rate(queue: MessageQueue) -> float:
    gauge = queue.gauge
    return gauge.net_rate if gauge is not None else 0.0


PLAIN: dict[str, Read] = {
    "name": attrgetter("name"),
    "vhost": attrgetter("vhost_name"),
    "type": attrgetter("type"),
    "state": attrgetter("state"),
    "durable": attrgetter("durable"),
    "auto_delete": attrgetter("auto_delete"),
    "exclusive": attrgetter("exclusive"),
    "arguments": attrgetter("arguments"),
    "messages": attrgetter("messages"),
    "messages_ready": attrgetter("messages_ready"),
    "messages_unacknowledged": attrgetter("messages_unacknowledged"),
    "message_bytes": attrgetter("message_bytes"),
    "message_bytes_ready": attrgetter("message_bytes_ready"),
    "message_bytes_unacknowledged": attrgetter("message_bytes_unacknowledged"),
    "message_bytes_persistent": attrgetter("message_bytes_persistent"),
    "consumers": attrgetter("consumer_count"),
    "exclusive_consumer_tag": lambda queue: queue.exclusive_consumer_tag or None,
    "single_active_consumer_tag": attrgetter("single_active_consumer_tag"),
    "policy": attrgetter("policy_name"),
    "operator_policy": attrgetter("operator_policy_name"),
    "effective_policy_definition": lambda queue: queue.policy_definition or {},
    "segments": attrgetter("segments"),
    "disk_bytes": attrgetter("disk_bytes"),
    "disk_bytes_live": attrgetter("disk_bytes_live"),
    "storage_version": lambda queue: 1,
    "net_rate": _net_rate,
    "limit_share": troubles.limit_share,
    "refuse_rate": refuse_rate,
}
"""Those that every queue has and that are read of it alone."""


ALIKE = frozenset(("storage_version",))
"""Those that are the same of all."""

STORED: dict[str, Read] = {
    **{
        name: attrgetter(name)
        for name in (
            "messages_persistent",
            "messages_ram",
            "messages_ready_ram",
            "messages_unacknowledged_ram",
            "messages_paged_out",
            "message_bytes_ram",
            "message_bytes_paged_out",
            "consumer_capacity",
            "head_message_timestamp",
            "memory",
        )
    },
    "consumer_utilisation": attrgetter("consumer_capacity"),
}
"""Those that streams do not have; None is not known."""

_STORED = Fields(STORED)


RATES: dict[str, tuple[str, ...]] = {
    **{f"message_stats.{name}_details.rate": (name,) for name in QUEUE_COUNTERS},
    "message_stats.deliver_get_details.rate": DELIVERING,
}
"""Columns that are the rates of counters, and of which."""


class Wanted(NamedTuple):
    """What of a row is wanted. `stats`: the counters of `message_stats`."""

    plain: Fields
    stored: Fields | None
    groups: tuple[Callable[[QueueRows, Any], dict[str, Any]], ...]
    stats: tuple[str, ...]


class QueueRows:
    """Builds rows with figures, or of each what is wanted, as of now; `view` is of queues."""

    def __init__(self, view: View, ages: Ages, columns: list[str] | None = None) -> None:
        self._view = view
        self._ages = ages
        self._stats = view.stats
        plain = PLAIN | {"node": lambda queue: view.broker.node_name, "trouble": view.trouble}
        self._wanted = (
            Wanted(Fields(plain), _STORED, tuple(_GROUPS), QUEUE_COUNTERS)
            if columns is None
            else _chosen(columns, plain)
        )

    def build(self, queue: MessageQueue) -> dict[str, Any]:
        """One row."""
        wanted = self._wanted
        row = wanted.plain.row(queue)
        if wanted.stored is not None and queue.type != "stream":
            wanted.stored.add_to(row, queue)
        for group in wanted.groups:
            row |= group(self, queue)
        return row

    def _gauge(self, queue: MessageQueue) -> Gauge | None:
        if self._ages:
            self._stats.watch("queue", queue)
        return self._stats.gauge("queue", queue)

    def lengths(self, queue: MessageQueue) -> dict[str, Any]:
        """How the numbers of messages change."""
        gauge, age, now = self._gauge(queue), self._ages.get("lengths"), self._view.now
        if gauge is None:
            return rates(TOTALS, None)
        if age is None:
            both = rates(LEVELS, gauge)
            return {"messages_details": added(*both.values()), **both}
        ready = details("messages_ready", gauge, age, now)
        unacked = details("messages_unacknowledged", gauge, age, now)
        return {
            "messages_details": added(ready, unacked),
            "messages_ready_details": ready,
            "messages_unacknowledged_details": unacked,
        }

    def in_force(self, queue: MessageQueue) -> dict[str, Any]:
        """Which arguments hold, of its own and of its policies."""
        if queue.policy is None:
            return {"effective_arguments": list(queue.arguments), "effective_policy_arguments": []}
        found = governed("queue", queue)
        names = ("effective_arguments", "effective_policy_arguments")
        return {name: found[name] for name in names}

    def idle(self, queue: MessageQueue) -> dict[str, Any]:
        """`idle_since`, unless it is in use."""
        return idle_facts(self._stats.gauge("queue", queue), queue.used_at)

    def counted(self, queue: MessageQueue) -> dict[str, Any]:
        """`message_stats`, and what add-ons tell and count."""
        gauge, counters = self._gauge(queue), queue.counters()
        stats = message_stats(self._wanted.stats, counters, gauge, self._ages, self._view.now)
        facts = feature_facts(getattr(queue, "duplicates", None), stats)
        return {"message_stats": stats, **facts}

    def maker(self, queue: MessageQueue) -> dict[str, Any]:
        """The user who declared the queue, where that is known."""
        if queue.declared_by is None:
            return {}
        return {"user_who_performed_action": queue.declared_by}

    def copies(self, queue: MessageQueue) -> dict[str, Any]:
        """Where the copies of a queue of type quorum or stream are: monitoring compares the members
        with those that are online."""
        if not _has_copies(queue):
            return {}
        node = self._view.broker.node_name
        return {"leader": node, "members": [node], "online": [node]}

    def owner(self, queue: MessageQueue) -> dict[str, Any]:
        """The connection that an exclusive queue belongs to."""
        if queue.owner is None:
            return {}
        host, port = queue.owner.peer[:2]
        details = {"name": queue.owner.name, "peer_host": host, "peer_port": port}
        return {"owner_pid_details": details}


def _has_copies(queue: MessageQueue) -> bool:
    return queue.type != "classic"


_FEATURE_FACTS = ("dedup_count", "dedup_remembered", "dedup_remembered_max")

_GROUPS: dict[Callable[[QueueRows, Any], dict[str, Any]], frozenset[str]] = {
    QueueRows.lengths: frozenset(f"{name}_details" for name in TOTALS),
    QueueRows.in_force: frozenset(("effective_arguments", "effective_policy_arguments")),
    QueueRows.idle: frozenset(("idle_since",)),
    QueueRows.counted: frozenset(("message_stats", *_FEATURE_FACTS)),
    QueueRows.maker: frozenset(("user_who_performed_action",)),
    QueueRows.copies: frozenset(("leader", "members", "online")),
    QueueRows.owner: frozenset(("owner_pid_details",)),
}
"""Parts of a row that are built at once, and the fields of each."""

FIELDS = frozenset(("node", "trouble", *PLAIN, *STORED)).union(*_GROUPS.values())


def quick_rows(view: View, columns: list[str]) -> Callable[[Any], dict[str, Any]] | None:
    """Builds what the columns name, where all of them are single fields or rates of counters: most
    lists of programs and pages. None for others."""
    plain = PLAIN | {"node": lambda queue: view.broker.node_name, "trouble": view.trouble}
    single = {name: plain[name] for name in columns if name in plain}
    of_rates = {column: RATES[column] for column in columns if column in RATES}
    if len(single) + len(of_rates) < len(set(columns)):
        return None
    read = Fields(single).row
    if not of_rates:
        return read
    keys = [(column.split(".")[1], names) for column, names in of_rates.items()]

    def build(queue: MessageQueue) -> dict[str, Any]:
        row = read(queue)
        gauge = queue.gauge
        row["message_stats"] = {
            key: {"rate": 0.0 if gauge is None else gauge.rate_of(names)} for key, names in keys
        }
        return row

    return build


def _chosen(columns: Iterable[str], plain: dict[str, Read]) -> Wanted:
    """What is needed for these columns, some of them dotted."""
    tops = dict.fromkeys(column.partition(".")[0] for column in columns)
    stored = {name: STORED[name] for name in tops if name in STORED}
    return Wanted(
        Fields({name: plain[name] for name in tops if name in plain}),
        Fields(stored) if stored else None,
        tuple(group for group, names in _GROUPS.items() if not names.isdisjoint(tops)),
        counters_in(columns, QUEUE_COUNTERS),
    )


def _owner_of(queue: MessageQueue) -> Any:
    return queue.owner.name if queue.owner is not None else None


def _arguments_in_force(queue: MessageQueue) -> list[str] | None:
    if queue.policy is None:
        arguments = queue.arguments
        return list(arguments) if arguments else None
    found: list[str] = governed("queue", queue)["effective_arguments"]
    return found


def _policy_arguments_in_force(queue: MessageQueue) -> list[str] | None:
    if queue.policy is None:
        return None
    found: list[str] = governed("queue", queue)["effective_policy_arguments"]
    return found


def _feature_fact(queue: MessageQueue, name: str) -> Any:
    return feature_facts(getattr(queue, "duplicates", None), {}).get(name)


_ORDERS: dict[str, Read] = {
    **{name: partial(_feature_fact, name=name) for name in _FEATURE_FACTS},
    **{
        name: AsText(PLAIN[name])
        for name in (
            "arguments",
            "single_active_consumer_tag",
            "policy",
            "operator_policy",
        )
    },
    "exclusive_consumer_tag": AsText(attrgetter("exclusive_consumer_tag")),
    "effective_policy_definition": AsText(attrgetter("policy_definition")),
    "user_who_performed_action": AsText(attrgetter("declared_by")),
    **dict.fromkeys(("leader", "members", "online"), _has_copies),
    "owner_pid_details": AsText(_owner_of),
    "owner_pid_details.name": AsText(_owner_of),
    "effective_arguments": AsText(_arguments_in_force),
    "effective_policy_arguments": AsText(_policy_arguments_in_force),
}
"""What stands for a field where queues are sorted by it, and is read faster."""


def sort_key(view: View, field: str) -> Read | None:
    """Reads of a queue what it is sorted by; None for what is the same of all, and for objects."""
    top, _, inner = field.partition(".")
    if field in _ORDERS:
        return _ORDERS[field]
    if field in STORED:
        return STORED[field]
    if top in PLAIN and top not in ALIKE:
        read = PLAIN[top]
        parts = inner.split(".")
        return (lambda queue: value_at(read(queue), parts)) if inner else read
    if top not in FIELDS or not inner:
        return None
    rows = QueueRows(view, {}, [field])
    parts = field.split(".")
    return lambda queue: value_at(rows.build(queue), parts)


def feature_facts(feature: Any, counters: dict[str, Any]) -> dict[str, Any]:
    """What a feature of a queue or an exchange (or None) adds to its row; its counters go among the
    others."""
    if feature is None:
        return {}
    counters |= feature.counters()
    facts: dict[str, Any] = feature.facts()
    return facts
