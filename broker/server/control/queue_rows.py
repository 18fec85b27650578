"""Queues and exchanges as RabbitMQ's API shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from broker.control_schema import Item, List
from broker.server.control import troubles
from broker.server.control.encoding import Pace, full_name
from broker.server.control.figures import added, details, message_stats, watched
from broker.server.control.flow_rows import Flows
from broker.server.control.policy_rows import applied, governed, setting_rows
from broker.server.control.requests import Caller
from broker.server.control.rosters import rosters_of
from broker.server.control.views import View, consumer_row, idle_facts, name_of
from broker.stats.gauges import DELIVERING, EXCHANGE_COUNTERS
from broker.stats.ordering import FIGURES, words

_QUEUE_STATS = (
    "publish",
    "confirm",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
)
_LEAVING = ("expired", "dropped", "dead_lettered", "refused")
"""How messages leave a queue without an ack, or never come in."""
_LEVELS = ("messages", "messages_ready", "messages_unacknowledged")

QUEUES_PER_STEP = 100
"""Of which the words of trouble are found between two looks at the clock."""


class Queues(View):
    """The noun `queues`."""

    noun = "queues"
    missing = "queue_not_found"
    kind = "queue"
    kept_order = ("vhost", "name")
    fixed = frozenset(("vhost", "name", "type", "durable", "auto_delete", "exclusive"))
    figures = FIGURES

    @property
    def plain(self) -> Mapping[str, Callable[[Any], Any]]:  # type: ignore[override]
        return _PLAIN

    async def everything(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        things = await rosters_of(self.broker).queues(vhosts, pace)
        if args.user is not None:
            return [queue for queue in things if _owner_name(queue) == args.user]
        return things

    async def words(self, things: list[Any], pace: Pace) -> list[str | None]:
        found: list[str | None] = []
        for start in range(0, len(things), QUEUES_PER_STEP):
            stop = start + QUEUES_PER_STEP
            found += words(things, start, stop, self.now, self.stuck_after, troubles.of_queue)
            await pace()
        return found

    def candidates(self, vhosts: list[Any], args: List) -> Iterable[Any]:
        for vhost in vhosts:
            for queue in list(vhost.queues.values()):
                if args.user is None or _owner_name(queue) == args.user:
                    yield queue

    def place(self, thing: Any) -> str:
        return str(thing.vhost_name)

    def locate(self, vhost: Any, args: Item) -> Any | None:
        return vhost.queues.get(full_name(vhost.queues, args.name or ""))

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def trouble(self, thing: Any) -> str:
        return troubles.of_queue(
            thing, self.stats.gauge("queue", thing), self.now, self.stuck_after
        )

    def order(self, thing: Any) -> Any:
        return (thing.vhost_name, thing.name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "trouble":
            return lambda queue: (
                troubles.RANK[self.trouble(queue)],
                -queue.messages_ready - queue.messages_unacknowledged,
            )
        if field in _PLAIN:
            return _PLAIN[field]
        parts = field.split(".")
        if len(parts) == 3 and parts[0] == "message_stats" and parts[2] == "rate":
            name = parts[1].removesuffix("_details")
            if name == "deliver_get":
                return self._rate(DELIVERING)
            if name in _QUEUE_STATS:
                return self._rate((name,))
        return None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row: dict[str, Any] = {
            "name": thing.name,
            "vhost": thing.vhost_name,
            "durable": thing.durable,
            "auto_delete": thing.auto_delete,
            "exclusive": thing.exclusive,
            "arguments": thing.arguments,
            "type": thing.type,
            "node": self.broker.node_name,
            "state": thing.state,
        }
        ready, unacked = thing.messages_ready, thing.messages_unacknowledged
        if args.disable_stats:
            row |= applied("queue", thing)
        if not args.disable_stats or args.enable_queue_totals:
            row |= {
                "messages": ready + unacked,
                "messages_ready": ready,
                "messages_unacknowledged": unacked,
            }
        if args.disable_stats:
            return row
        gauge = watched(self.stats, "queue", thing, args.ages)
        ready_bytes, unacked_bytes = (
            thing.message_bytes_ready,
            thing.message_bytes_unacknowledged,
        )
        lengths = args.ages.get("lengths")
        ready_details = details("messages_ready", gauge, lengths, self.now)
        unacked_details = details("messages_unacknowledged", gauge, lengths, self.now)
        row |= {
            "messages_details": added(ready_details, unacked_details),
            "messages_ready_details": ready_details,
            "messages_unacknowledged_details": unacked_details,
            "message_bytes": ready_bytes + unacked_bytes,
            "message_bytes_ready": ready_bytes,
            "message_bytes_unacknowledged": unacked_bytes,
            "message_bytes_persistent": thing.message_bytes_persistent,
            "consumers": thing.consumer_count,
            "exclusive_consumer_tag": thing.exclusive_consumer_tag or None,
            "single_active_consumer_tag": thing.single_active_consumer_tag,
            **governed("queue", thing),
            **idle_facts(gauge, thing.used_at),
            "message_stats": message_stats(
                _QUEUE_STATS, thing.counters(), gauge, args.ages, self.now
            ),
            "storage_version": 1,
            "segments": thing.segments,
            "disk_bytes": thing.disk_bytes,
            "disk_bytes_live": getattr(thing, "disk_bytes_live", thing.disk_bytes),
            "net_rate": round(gauge.growth, 3) if gauge is not None else 0.0,
            "limit_share": troubles.limit_share(thing),
            "refuse_rate": refuse_rate(thing),
            "trouble": troubles.of_queue(thing, gauge, self.now, self.stuck_after),
        }
        if thing.type != "stream":
            row |= _held(thing)
        row |= feature_facts(getattr(thing, "duplicates", None), row["message_stats"])
        if thing.owner is not None:
            row["owner_pid_details"] = {
                "name": thing.owner.name,
                "peer_host": thing.owner.peer[0],
                "peer_port": thing.owner.peer[1],
            }
        return row

    def item(self, thing: Any, args: Item) -> dict[str, Any]:
        row = self.row(thing, args)
        if args.disable_stats:
            return row
        row["consumer_details"] = [
            consumer_row(self, consumer) for consumer in list(thing.consumers)
        ]
        if thing.type != "stream":
            row["message_stats"] |= {name: getattr(thing, name) for name in _LEAVING}
            row["oldest_unconfirmed"] = thing.oldest_unconfirmed
        row["settings"] = setting_rows("queue", thing)
        if thing.type == "stream":
            row["stream"] = thing.stream_figures()
        row["deliveries"] = Flows(self).deliveries(list(thing.consumers), "channel")
        return row

    async def flows(self, thing: Any, args: Item) -> dict[str, Any]:
        return {"incoming": await Flows(self).into_queue(thing)}

    def live(self, thing: Any) -> dict[str, Any]:
        gauge = self.stats.gauge("queue", thing)
        ready, unacked = thing.messages_ready, thing.messages_unacknowledged
        live: dict[str, Any] = {
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            "message_bytes": thing.message_bytes_ready + thing.message_bytes_unacknowledged,
            "consumers": thing.consumer_count,
            "state": thing.state,
            "trouble": troubles.of_queue(thing, gauge, self.now, self.stuck_after),
            "net_rate": round(gauge.growth, 3) if gauge is not None else 0.0,
            "limit_share": troubles.limit_share(thing),
            "refuse_rate": refuse_rate(thing),
        }
        for name in ("publish", "ack", "redeliver"):
            rate = gauge.rate(name) if gauge is not None else 0.0
            live[f"message_stats.{name}_details.rate"] = rate
        live["message_stats.deliver_get_details.rate"] = (
            gauge.rate_of(DELIVERING) if gauge is not None else 0.0
        )
        return live

    def _rate(self, names: tuple[str, ...]) -> Callable[[Any], float]:
        def rate(queue: Any) -> float:
            gauge = self.stats.gauge("queue", queue)
            return gauge.rate_of(names) if gauge is not None else 0.0

        return rate


def refuse_rate(queue: Any) -> float:
    """Publishes that the full queue refused, a second."""
    refusals = getattr(queue, "refusals", None)
    return float(refusals.rate) if refusals is not None else 0.0


class Exchanges(View):
    """The noun `exchanges`."""

    noun = "exchanges"
    missing = "exchange_not_found"
    kind = "exchange"
    kept_order = ("vhost", "name")
    fixed = frozenset(("vhost", "name", "type", "durable", "auto_delete", "internal"))

    async def everything(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        return await rosters_of(self.broker).exchanges(vhosts, pace)

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for vhost in vhosts:
            for exchange in list(vhost.exchanges.values()):
                yield vhost, exchange

    def place(self, thing: Any) -> str:
        return str(thing[0].name)

    def locate(self, vhost: Any, args: Item) -> Any | None:
        name = "" if args.name == "amq.default" else full_name(vhost.exchanges, args.name or "")
        exchange = vhost.exchanges.get(name)
        return (vhost, exchange) if exchange is not None else None

    def name(self, thing: Any) -> str:
        return str(thing[1].name)

    def order(self, thing: Any) -> Any:
        return (thing[0].name, thing[1].name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "vhost":
            return lambda thing: thing[0].name
        if field in ("name", "type", "durable", "auto_delete", "internal"):
            return lambda thing: getattr(thing[1], field)
        for name in EXCHANGE_COUNTERS:
            if field == f"message_stats.{name}":
                return partial(_count, name=name)
            if field == f"message_stats.{name}_details.rate":
                return lambda thing, name=name: self._rate(thing[1], name)  # type: ignore[misc]
        return None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        vhost, exchange = thing
        row = {
            "name": exchange.name,
            "vhost": vhost.name,
            "type": exchange.type,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": exchange.arguments,
        }
        if args.disable_stats:
            return row | applied("exchange", exchange)
        row |= governed("exchange", exchange)
        gauge = watched(self.stats, "exchange", exchange, args.ages)
        counters = {"publish_in": exchange.publish_in, "publish_out": exchange.publish_out}
        row["message_stats"] = message_stats(counters, counters, gauge, args.ages, self.now)
        for joint in (exchange.holding, exchange.duplicates):
            row |= feature_facts(joint, row["message_stats"])
        return row

    def item(self, thing: Any, args: Item) -> dict[str, Any]:
        if args.disable_stats:
            return self.row(thing, args)
        return {**self.row(thing, args), "settings": setting_rows("exchange", thing[1])}

    async def flows(self, thing: Any, args: Item) -> dict[str, Any]:
        vhost, exchange = thing
        incoming, outgoing = await Flows(self).of_exchange(vhost.name, exchange)
        return {"incoming": incoming, "outgoing": outgoing}

    def live(self, thing: Any) -> dict[str, Any]:
        return {
            f"message_stats.{name}_details.rate": self._rate(thing[1], name)
            for name in ("publish_in", "publish_out")
        }

    def _rate(self, exchange: Any, name: str) -> float:
        gauge = self.stats.gauge("exchange", exchange)
        return gauge.rate(name) if gauge is not None else 0.0


def feature_facts(joint: Any, counters: dict[str, Any]) -> dict[str, Any]:
    """What a feature at a joint of a queue or an exchange (or None) adds to its row; its counters
    go among the others."""
    if joint is None:
        return {}
    counters |= joint.counters()
    facts: dict[str, Any] = joint.facts()
    return facts


def _count(thing: Any, name: str) -> Any:
    return getattr(thing[1], name)


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "name": lambda queue: queue.name,
    "vhost": lambda queue: queue.vhost_name,
    "type": lambda queue: queue.type,
    "state": lambda queue: queue.state,
    "durable": lambda queue: queue.durable,
    "auto_delete": lambda queue: queue.auto_delete,
    "exclusive": lambda queue: queue.exclusive,
    "messages": lambda queue: queue.messages_ready + queue.messages_unacknowledged,
    "messages_ready": lambda queue: queue.messages_ready,
    "messages_unacknowledged": lambda queue: queue.messages_unacknowledged,
    "message_bytes": lambda queue: queue.message_bytes_ready + queue.message_bytes_unacknowledged,
    "message_bytes_ready": lambda queue: queue.message_bytes_ready,
    "consumers": lambda queue: queue.consumer_count,
    "disk_bytes": lambda queue: queue.disk_bytes,
}


def _owner_name(queue: Any) -> str | None:
    return name_of(queue.owner.user) if queue.owner is not None else None


def _held(queue: Any) -> dict[str, Any]:
    """What a queue has in memory, and how its consumers keep up; None is not known."""
    capacity, in_memory = queue.consumer_capacity, queue.messages_ram
    total = queue.messages_ready + queue.messages_unacknowledged
    size = queue.message_bytes_ready + queue.message_bytes_unacknowledged
    is_one = in_memory in (0, total)
    bytes_in_memory = (size if in_memory else 0) if is_one else None
    return {
        "messages_persistent": queue.messages_persistent,
        "messages_ram": in_memory,
        "messages_ready_ram": (queue.messages_ready if in_memory else 0) if is_one else None,
        "messages_unacknowledged_ram": (
            (queue.messages_unacknowledged if in_memory else 0) if is_one else None
        ),
        "messages_paged_out": total - in_memory if in_memory is not None else None,
        "message_bytes_ram": bytes_in_memory,
        "message_bytes_paged_out": size - bytes_in_memory if bytes_in_memory is not None else None,
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "head_message_timestamp": queue.head_message_timestamp,
        "memory": queue.memory,
    }
