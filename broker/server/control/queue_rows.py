"""Queues and exchanges as RabbitMQ's API shows them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.kernel.through import Through, long_list
from broker.schema.columns import chosen
from broker.schema.control_schema import Item, List
from broker.server.control import troubles
from broker.server.control.encoding import full_name
from broker.server.control.figures import counters_in, message_stats, watched
from broker.server.control.flow_rows import Flows
from broker.server.control.picking import AsText
from broker.server.control.policy_rows import GOVERNED, applied, governed, setting_rows
from broker.server.control.queue_fields import (
    LEAN,
    PLAIN,
    TOTALS,
    QueueRows,
    feature_facts,
    quick_rows,
    refuse_rate,
    sort_key,
)
from broker.server.control.requests import Caller
from broker.server.control.rosters import rosters_of
from broker.server.control.views import Part, Read, View, consumer_row
from broker.server.pace import Pace
from broker.stats.gauges import DELIVERING, EXCHANGE_COUNTERS
from broker.stats.ordering import FIGURES, by_trouble, figures
from broker.stats.trouble import having_word

if TYPE_CHECKING:
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost

QUEUES_PER_STEP = 100
"""Of which the words of trouble are found between two looks at the clock."""


class Queues(View):
    """The noun `queues`."""

    noun = "queues"
    missing = "queue_not_found"
    kind = "queue"
    kept_order = ("vhost", "name")
    fixed = frozenset(("vhost", "name", "type", "durable", "auto_delete", "exclusive"))
    figures = FIGURES | {"trouble"}
    knows_fields = True
    _in_state: tuple[list[Any], list[float]] | None = None
    """What `in_state` chose, with its keys of the order by trouble."""

    def chooser(self, args: List) -> Callable[[Any], dict[str, Any]]:
        columns = args.columns
        if args.disable_stats:
            return super().chooser(args)
        if not columns:
            return QueueRows(self, args.ages).build
        quick = None if args.ages else quick_rows(self, columns)
        if quick is not None:
            return quick
        rows = QueueRows(self, args.ages, columns)
        return lambda queue: chosen(rows.build(queue), columns)

    async def everything(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        things = await rosters_of(self.broker).queues(vhosts, pace)
        if args.user is None:
            return things
        found: list[Any] = long_list()
        for start in range(0, len(things), QUEUES_PER_STEP):
            part = things[start : start + QUEUES_PER_STEP]
            found += [queue for queue in part if queue.declared_by == args.user]
            await pace()
        return found

    async def in_state(self, things: list[Any], words: Collection[str], pace: Pace) -> list[Any]:
        found: list[Any] = long_list()
        keys: list[float] = long_list()
        ranks = {word: rank for word, rank in troubles.RANK.items() if word in words}
        for start in range(0, len(things), QUEUES_PER_STEP):
            stop = start + QUEUES_PER_STEP
            found += having_word(things, ranks, start, stop, self.now, self.stuck_after, keys)
            await pace()
        self._in_state = (found, keys)
        return found

    def candidates(self, vhosts: list[Any], args: List) -> Iterable[Any]:
        for vhost in vhosts:
            for queue in Through(vhost.queues.values()):
                yield queue if args.user is None or queue.declared_by == args.user else None

    def place(self, thing: Any) -> str:
        return str(thing.vhost_name)

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        return vhost.queues.get(full_name(vhost.queues, args.name or ""))

    name = staticmethod(PLAIN["name"])  # type: ignore[assignment]

    def trouble(self, thing: Any) -> str:
        return troubles.of_queue(
            thing, self.stats.gauge("queue", thing), self.now, self.stuck_after
        )

    def order(self, thing: Any) -> Any:
        return (thing.vhost_name, thing.name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return sort_key(self, field)

    def read_figures(
        self, things: list[Any], field: str, start: int, stop: int, found: array[float]
    ) -> None:
        if field == "trouble" and self._in_state is not None and self._in_state[0] is things:
            # Each word was read when the things were chosen; twice is half of what a page costs.
            found[start:stop] = array("d", self._in_state[1][start:stop])
        elif field == "trouble":
            # The worst word first, then the most messages.
            by_trouble(things, troubles.RANK, self.now, self.stuck_after, start, stop, found)
        else:
            figures(things, field, start, stop, found)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        if not args.disable_stats:
            return QueueRows(self, args.ages).build(thing)
        row = {name: PLAIN[name](thing) for name in LEAN}
        row |= {"node": self.broker.node_name, "state": thing.state, **applied("queue", thing)}
        if args.enable_queue_totals:
            row |= {name: PLAIN[name](thing) for name in TOTALS}
        return row

    def item(self, thing: Any, args: Item) -> dict[str, Any]:
        row = self.row(thing, args)
        if args.disable_stats:
            return row
        if args.flows:
            consumers = list(thing.consumers)
            row["consumer_details"] = [consumer_row(self, consumer) for consumer in consumers]
            row["deliveries"] = Flows(self).deliveries(consumers, "channel")
        if thing.type != "stream":
            row["message_stats"] |= thing.leaving()
            row["oldest_unconfirmed"] = thing.oldest_unconfirmed
        row["settings"] = setting_rows("queue", thing)
        if thing.type == "stream":
            row["stream"] = thing.stream_figures() | {"index": self._index(thing)}
        return row

    def _index(self, stream: Any) -> dict[str, Any] | None:
        """The random index of a stream; None: it has none."""
        indexes = self.broker.stream_indexes
        index = indexes and indexes.of(self.broker.vhosts.get(stream.vhost_name))
        return (
            index.shown(stream.incarnation) if index and index.names(stream.incarnation) else None
        )

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
            "net_rate": gauge.net_rate if gauge is not None else 0.0,
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


EXCHANGE_FIELDS: dict[str, Read] = {
    "name": lambda thing: thing[1].name,
    "vhost": lambda thing: thing[0].name,
    "type": lambda thing: thing[1].type,
    "durable": lambda thing: thing[1].durable,
    "auto_delete": lambda thing: thing[1].auto_delete,
    "internal": lambda thing: thing[1].internal,
    "arguments": lambda thing: thing[1].arguments,
}
"""The fields of an exchange that are read of it alone."""


def _policy_key(read: Callable[[Any], Any]) -> AsText:
    """Sorts exchanges by something of the policies they are under."""

    def of_policy(thing: Any) -> Any:
        exchange = thing[1]
        return None if exchange.policy is None else read(exchange)

    return AsText(of_policy)


def _arguments_in_force(thing: Any) -> list[str] | None:
    exchange = thing[1]
    if exchange.policy is None:
        arguments = exchange.arguments
        return list(arguments) if arguments else None
    found: list[str] = governed("exchange", exchange)["effective_arguments"]
    return found


_EXCHANGE_ORDERS: dict[str, Read] = {
    "arguments": AsText(EXCHANGE_FIELDS["arguments"]),
    "policy": _policy_key(attrgetter("policy.name")),
    "operator_policy": _policy_key(attrgetter("policy.operator_name")),
    "effective_policy_definition": _policy_key(attrgetter("policy.definition")),
    "effective_policy_arguments": _policy_key(
        lambda exchange: governed("exchange", exchange)["effective_policy_arguments"]
    ),
    "effective_arguments": AsText(_arguments_in_force),
}
"""What exchanges are sorted by, of what need not be built."""

_COUNTED = frozenset(
    (
        "message_stats",
        "messages_delayed",
        "messages_leaving",
        "message_bytes_delayed",
        "delayed_disk_bytes",
        "dedup_count",
        "dedup_remembered",
        "dedup_remembered_max",
    )
)
"""What is counted of an exchange, by it and by its add-ons."""


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
            for exchange in Through(vhost.exchanges.values()):
                yield vhost, exchange

    def place(self, thing: Any) -> str:
        return str(thing[0].name)

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        name = "" if args.name == "amq.default" else full_name(vhost.exchanges, args.name or "")
        exchange = vhost.exchanges.get(name)
        return (vhost, exchange) if exchange is not None else None

    def name(self, thing: Any) -> str:
        return str(thing[1].name)

    def order(self, thing: Any) -> Any:
        return (thing[0].name, thing[1].name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field in self.fixed:
            return EXCHANGE_FIELDS[field]
        if field in _EXCHANGE_ORDERS:
            return _EXCHANGE_ORDERS[field]
        for name in EXCHANGE_COUNTERS:
            if field == f"message_stats.{name}":
                return partial(_count, name=name)
            if field == f"message_stats.{name}_details.rate":
                return lambda thing, name=name: self._rate(thing[1], name)  # type: ignore[misc]
        return None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        if not args.disable_stats:
            return self.builder(args)(thing)
        row = {name: read(thing) for name, read in EXCHANGE_FIELDS.items()}
        return row | applied("exchange", thing[1])

    def fields(self) -> dict[str, Read]:
        return EXCHANGE_FIELDS

    def parts(self, args: List | Item, columns: list[str] | None) -> list[Part]:
        names = counters_in(columns, EXCHANGE_COUNTERS)

        def counted(thing: Any) -> dict[str, Any]:
            exchange = thing[1]
            gauge = watched(self.stats, "exchange", exchange, args.ages)
            counters = {name: getattr(exchange, name) for name in names}
            stats = message_stats(names, counters, gauge, args.ages, self.now)
            facts: dict[str, Any] = {"message_stats": stats}
            for joint in (exchange.holding, exchange.duplicates):
                facts |= feature_facts(joint, stats)
            return facts

        return [
            Part(GOVERNED, lambda thing: governed("exchange", thing[1])),
            Part(_COUNTED, counted),
        ]

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

    def _rate(self, exchange: BoundExchange, name: str) -> float:
        gauge = self.stats.gauge("exchange", exchange)
        return gauge.rate(name) if gauge is not None else 0.0


def _count(thing: Any, name: str) -> Any:
    return getattr(thing[1], name)
