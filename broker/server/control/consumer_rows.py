"""Consumers as RabbitMQ's API shows them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

from broker.kernel.through import Through, long_list
from broker.schema.control_schema import Item, List
from broker.server.control import troubles
from broker.server.control.connection_rows import Channels, shown_name
from broker.server.control.encoding import full_name
from broker.server.control.picking import AsText
from broker.server.control.requests import Caller, not_found
from broker.server.control.rosters import in_order, rosters_of
from broker.server.control.views import (
    ITEMS_PER_LOOK,
    Part,
    Read,
    View,
    channel_name,
    consumer_fields,
    consumer_row,
    name_of,
    reader_facts,
)
from broker.server.pace import Pace
from broker.stats.ordering import consumer_timeouts, consumers_by_trouble
from broker.wire.ack_timeouts import timeout_of

_tag = attrgetter("tag")

_KEYS: dict[str, Read] = {
    "consumer_tag": _tag,
    "queue.name": attrgetter("queue.name"),
    "queue.vhost": attrgetter("queue.vhost_name"),
    **{
        name: attrgetter(name)
        for name in ("prefetch_count", "ack_required", "exclusive", "active", "unacked", "priority")
    },
    "arguments": AsText(attrgetter("arguments")),
    "channel_details.user_provided_name": lambda one: shown_name(one.channel.connection),
    "channel_details.name": lambda consumer: channel_name(consumer.channel),
    "channel_details.node": lambda consumer: 0,  # the same of all
    "channel_details.number": attrgetter("channel.number"),
    "channel_details.user": lambda consumer: name_of(consumer.channel.connection.user),
    "channel_details.connection_name": attrgetter("channel.connection.name"),
    "channel_details.peer_host": lambda consumer: consumer.channel.connection.peer[0],
    "channel_details.peer_port": lambda consumer: consumer.channel.connection.peer[1],
}
"""What consumers are sorted by, of what need not be built."""


class Consumers(View):
    """The noun `consumers`, by vhost and by connection: rows have the names and addresses of
    clients. A row key is the channel's name and the tag."""

    noun = "consumers"
    are_clients = True
    kept_order = ("queue.vhost", "queue.name")
    fixed = frozenset(_KEYS.keys() - {"prefetch_count", "active", "unacked"})
    figures = frozenset(("trouble", "consumer_timeout"))

    async def in_kept_order(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        found: list[Any] = long_list()
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        queues = await rosters_of(self.broker).queues(vhosts, pace)
        sees_all = caller.sight.of_node
        for start in range(0, len(queues), ITEMS_PER_LOOK):
            part = queues[start : start + ITEMS_PER_LOOK]
            for consumers in [queue.consumers for queue in part if queue.consumer_count]:
                if not sees_all:
                    consumers = await self._owned(caller, list(consumers), pace)
                few = len(consumers) == 1
                found += consumers if few else await in_order(list(consumers), _tag, pace)
            await pace()
        return found

    async def _owned(self, caller: Caller, consumers: list[Any], pace: Pace) -> list[Any]:
        """Those of connections that the caller may see, in short steps."""
        found: list[Any] = long_list()
        for start in range(0, len(consumers), ITEMS_PER_LOOK):
            part = consumers[start : start + ITEMS_PER_LOOK]
            found += [one for one in part if self.is_owned(caller, one)]
            await pace()
        return found

    def is_kept(self, args: List) -> bool:
        are_filtered = args.queue is not None or args.connection is not None
        return not are_filtered and args.channel is None and super().is_kept(args)

    def scope(self, caller: Caller, args: List) -> tuple[Any, ...]:
        # Users of the same vhosts see different ones.
        owner = None if caller.sight.of_node else caller.name
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        return owner, *(vhost.name for vhost in vhosts)

    def read_figures(
        self, things: list[Any], field: str, start: int, stop: int, found: array[float]
    ) -> None:
        if field == "trouble":
            ranks, after = troubles.RANK, self.stuck_after
            consumers_by_trouble(things, ranks, self.now, after, start, stop, found)
            return
        usual = self.broker.config.consumer_timeout
        other = partial(timeout_of, default_s=usual)
        consumer_timeouts(things, int(usual * 1000), other, start, stop, found)

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for vhost in vhosts:
            queues: Iterator[Any] = Through(vhost.queues.values())
            if args.queue is not None:
                queue = vhost.queues.get(full_name(vhost.queues, args.queue))
                queues = iter([queue] if queue is not None else [])
            for queue in queues:
                if not queue.consumer_count:
                    yield None
                    continue
                for consumer in list(queue.consumers):
                    channel = consumer.channel
                    is_wanted = args.connection in (None, channel.connection.name) and (
                        args.channel is None or channel_name(channel) == args.channel
                    )
                    yield consumer if is_wanted else None

    def place(self, thing: Any) -> str:
        return str(thing.queue.vhost_name)

    has_owner = True

    def owner(self, thing: Any) -> str | None:
        owner: str | None = name_of(thing.channel.connection.user)
        return owner

    def by_key(self, caller: Caller, channel: str, tag: str) -> Any:
        """The consumer of a channel. Raises RequestError 404."""
        found = Channels(self.broker).by_name(channel)
        consumer = found.deliveries.consumers.get(tag) if found is not None else None
        if consumer is None or not self.shows(caller, consumer):
            raise not_found(self.missing)
        return consumer

    has_client_name = True

    def client_name(self, thing: Any) -> str:
        return str(thing.channel.connection.user_provided_name)

    def name(self, thing: Any) -> str:
        return str(thing.tag)

    def trouble(self, thing: Any) -> str:
        gauge = self.stats.gauge("channel", thing.channel)
        return troubles.of_consumer(thing, gauge, self.now, self.stuck_after)

    def order(self, thing: Any) -> Any:
        return (thing.queue.vhost_name, thing.queue.name, thing.tag)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return _KEYS.get(field)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        return consumer_row(self, thing)

    def fields(self) -> dict[str, Read]:
        return consumer_fields(self)

    def parts(self, args: List | Item, columns: list[str] | None) -> list[Part]:
        return [Part(frozenset(("stream",)), reader_facts)]

    def live(self, thing: Any) -> dict[str, Any]:
        return {
            "active": thing.active,
            "unacked": thing.unacked,
            "prefetch_count": thing.prefetch_count,
            "trouble": self.trouble(thing),
        }
