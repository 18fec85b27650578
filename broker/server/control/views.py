"""How each noun is listed, found, sorted and shown. One subclass of `View` for each."""

from __future__ import annotations

import functools
import time
from array import array
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from broker.kernel.through import long_list
from broker.schema.columns import chosen, value_at
from broker.schema.control_schema import NOUNS, Item, List
from broker.server.control import troubles
from broker.server.control.requests import Caller, not_found
from broker.server.control.rosters import Kept, in_order, rosters_of
from broker.server.pace import Pace
from broker.stats import Gauge, Stats
from broker.stats.reading import Fields
from broker.wire.ack_timeouts import timeout_of

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

Read = Callable[[Any], Any]
"""Reads one field of a thing."""


class Part(NamedTuple):
    """Fields of a row that are built together; one that a thing does not have is left out."""

    names: frozenset[str]
    build: Callable[[Any], dict[str, Any]]


ITEMS_PER_LOOK = 32
"""Cheap steps between two readings of the clock."""


class View:
    """One noun, as of now. Things are whatever `candidates` yields; which of them a caller sees is
    decided by `broker.schema.sight` with the noun's rule, here and nowhere in a subclass."""

    noun = ""

    missing = "Not Found"
    """The reason of the 404."""

    kind = ""
    """The kind of gauge that the things have, if any."""

    are_clients = False
    """Whether they come and go with connections, channels and consumers."""

    kept_order: tuple[str, ...] = ()
    """By which fields `everything` is in order already, the first first; none: in no order."""

    fixed: frozenset[str] = frozenset()
    """Fields, of those that `sort_key` knows, which never change while a thing is there."""

    knows_fields = False
    """Whether `sort_key` knows every field that differs between rows."""

    figures: frozenset[str] = frozenset()
    """Fields that `read_figures` reads of these things: numbers, compared in C."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.stats: Stats = broker.stats
        self.now: int = broker.stats.sampled_at
        self.stuck_after: float = broker.config.stuck_after

    def all(self, caller: Caller, args: List) -> Iterable[Any]:
        """The things that the caller may see and the filters of the noun let through, and None in
        place of each other one: most may be of other users, and between two steps the loop can
        serve its clients. Raises RequestError for filters that the caller may not use."""
        if args.secrets:
            caller.require("administrator")
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        things = self.candidates(vhosts, args)
        if self.has_owner and not caller.sight.of_node:
            things = (
                None if one is None or not self.is_owned(caller, one) else one for one in things
            )
        if caller.sight.of_every(self.noun):
            yield from things
            return
        # Rights are asked once for each vhost or user, not for each of their things.
        shown: dict[str | None, bool] = {}
        for thing in things:
            if thing is None:
                yield None
                continue
            place = self.place(thing)
            if place not in shown:
                shown[place] = caller.sight.of_noun(self.noun, place)
            yield thing if shown[place] else None

    def candidates(self, vhosts: list[Any], args: List) -> Iterable[Any]:
        """The things that the filters of the noun let through; in these vhosts, if the noun is
        shown by vhost. None where one was looked at that they do not let through."""
        raise NotImplementedError

    def place(self, thing: Any) -> str | None:
        """The name of the vhost or the user that the rule of the noun asks about."""
        raise NotImplementedError

    has_owner = False
    """Whether a thing is shown by the rule of connections besides that of its noun."""

    def owner(self, thing: Any) -> str | None:
        """The user whose connection the thing is of, where things have owners."""
        raise NotImplementedError

    def is_owned(self, caller: Caller, thing: Any) -> bool:
        """Whether the caller may see the connection that the thing is of, if it is of one."""
        return not self.has_owner or caller.sight.of_connection(self.owner(thing))

    def shows(self, caller: Caller, thing: Any) -> bool:
        """Whether the caller may see the thing."""
        return caller.sight.of_noun(self.noun, self.place(thing)) and self.is_owned(caller, thing)

    @property
    def keeper(self) -> Kept:
        """What keeps lists of these things from one request to the next."""
        rosters = rosters_of(self.broker)
        return rosters.of_clients if self.are_clients else rosters.of_things

    def scope(self, caller: Caller, args: List) -> tuple[Any, ...]:
        """What decides which things there are, where their list is kept: whose things the caller
        sees, and the filters."""
        if self.are_clients:
            owner = None if caller.sight.of_every(self.noun) else caller.name
            return owner, args.user, args.vhost, args.connection
        vhosts = [vhost.name for vhost in caller.reach(self.noun, args.vhost, args.user)]
        return args.user, args.source, *vhosts

    def read_figures(
        self, things: list[Any], field: str, start: int, stop: int, found: array[float]
    ) -> None:
        """Puts the figure of each of `things[start:stop]` at its place of `found`; `field` is one
        of `figures`."""
        raise NotImplementedError

    async def everything(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        """All of them as a list, in short steps. Raises RequestError as `all` does."""
        if not self.is_kept(args):
            return await self.gathered(caller, args, pace)
        caller.reach(self.noun, args.vhost, args.user)
        scope = (self.noun, "in order", *self.scope(caller, args))
        return await self.keeper.kept(scope, lambda: self.in_kept_order(caller, args, pace))

    async def gathered(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        """All of them as they come. Raises RequestError as `all` does."""
        found: list[Any] = long_list()
        things = iter(self.all(caller, args))
        while part := list(islice(things, ITEMS_PER_LOOK)):
            found += [thing for thing in part if thing is not None]
            await pace()
        return found

    async def in_kept_order(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        """All of them in the kept order."""
        return await in_order(await self.gathered(caller, args, pace), self.order, pace)

    def is_kept(self, args: List) -> bool:
        """Whether `everything` is in the kept order for these arguments."""
        return bool(self.kept_order) and not (self.are_clients and self.keeper.version is None)

    async def in_state(self, things: list[Any], words: Collection[str], pace: Pace) -> list[Any]:
        """Those that have one of the words of trouble."""
        found: list[Any] = long_list()
        for place, thing in enumerate(things):
            if self.trouble(thing) in words:
                found.append(thing)
            if place % ITEMS_PER_LOOK == 0:
                await pace()
        return found

    def find(self, caller: Caller, args: Item) -> Any:
        """The thing that the arguments name. Raises RequestError: 401 for a vhost that the caller
        may not look into and a user that is not the caller's own, else 404, also for what is there
        and not shown."""
        if args.secrets:
            caller.require("administrator")
        is_by_vhost = NOUNS[self.noun].scope == "vhost"
        reach = caller.reach(self.noun, args.vhost or "/" if is_by_vhost else None, args.user)
        thing = self.locate(reach[0] if is_by_vhost else None, args)
        if thing is None or not self.shows(caller, thing):
            raise not_found(self.missing)
        return thing

    def locate(self, vhost: Any, args: Item) -> Any | None:
        """The thing that the arguments name, if there is one; `vhost` for a noun that is shown by
        vhost."""
        raise NotImplementedError

    def name(self, thing: Any) -> str:
        """What the name filter looks at."""
        raise NotImplementedError

    has_client_name = False
    """Whether the name filter also looks at what a client calls itself."""

    def client_name(self, thing: Any) -> str:
        """What the client calls itself, or an empty text."""
        return ""

    def trouble(self, thing: Any) -> str | None:
        """The word of trouble, for nouns that have one."""
        return None

    def order(self, thing: Any) -> Any:
        """The place of a thing in a list that names no order: by vhost and name, as in RabbitMQ."""
        return self.name(thing)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        """How to sort by a field without building rows; None if only the row tells."""
        return None

    def key_of(self, field: str, args: List) -> Callable[[Any], Any]:
        """What things are sorted by where the row has the field: that of `sort_key`, of the table
        of fields, or of a row with that field alone."""
        key = self.sort_key(field)
        if key is not None:
            return key
        top, _, inner = field.partition(".")
        read = None if args.disable_stats else self.fields().get(top)
        if read is None:
            read = self.chooser(msgspec.structs.replace(args, columns=[field]))
            inner = field
        elif not inner:
            return read
        parts = inner.split(".")
        return lambda thing: value_at(read(thing), parts)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        """The row of a list."""
        raise NotImplementedError

    def fields(self) -> dict[str, Read]:
        """The fields of a row with figures that are read one by one. Rows of a noun without such a
        table are built whole."""
        return {}

    def parts(self, args: List | Item, columns: list[str] | None) -> list[Part]:
        """The fields of a row with figures that are built together. Where `columns` are chosen, a
        part builds no more counters than these need."""
        return []

    def builder(
        self, args: List | Item, columns: list[str] | None = None
    ) -> Callable[[Any], dict[str, Any]]:
        """Builds rows with figures from `fields` and `parts`, or of each those that the columns
        name, with what is built together with them."""
        fields, parts = self.fields(), self.parts(args, columns)
        if columns is not None:
            tops = dict.fromkeys(column.partition(".")[0] for column in columns)
            fields = {name: fields[name] for name in tops if name in fields}
            parts = [part for part in parts if not part.names.isdisjoint(tops)]
        read = Fields(fields).row
        builds = [part.build for part in parts]

        def build(thing: Any) -> dict[str, Any]:
            row = read(thing)
            for part in builds:
                row |= part(thing)
            return row

        return build

    def chooser(self, args: List) -> Callable[[Any], dict[str, Any]]:
        """Builds a row, or what the wanted columns name of it, and no more where the noun can."""
        columns = args.columns
        fields = {} if args.disable_stats else self.fields()
        if not fields:
            if not columns:
                return lambda thing: self.row(thing, args)
            return lambda thing: chosen(self.row(thing, args), columns)
        build = self.builder(args, columns or None)
        if not columns or fields.keys() >= set(columns):
            return build
        return lambda thing: chosen(build(thing), columns)

    def item(self, thing: Any, args: Item) -> dict[str, Any]:
        """The row with details, for one thing alone."""
        return self.row(thing, args)

    async def flows(self, thing: Any, args: Item) -> dict[str, Any]:
        """What of the details has to be gathered from other objects, in short steps."""
        return {}

    def live(self, thing: Any) -> dict[str, Any]:
        """What changes by itself, under dotted keys, for pushes."""
        return {}


def name_of(thing: Any) -> Any:
    """The name of an object, or the name itself."""
    return getattr(thing, "name", thing)


def idle_facts(gauge: Gauge | None, used_at: int) -> dict[str, str]:
    """`idle_since`, as RabbitMQ writes it (UTC, with milliseconds); nothing while it is in use.

    `used_at` is when the object was made or used otherwise than by messages, ms since 1970.
    """
    since = idle_from(gauge, used_at)
    if since is None:
        return {}
    seconds, milliseconds = divmod(since, 1000)
    return {"idle_since": f"{_utc(seconds)}.{milliseconds:03d}+00:00"}


@functools.lru_cache(maxsize=1024)
def _utc(seconds: int) -> str:
    """Seconds since 1970 as date and time; the rows of a list share many."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def idle_from(gauge: Gauge | None, used_at: int) -> int | None:
    """Since when it is idle, ms since 1970; None while it is in use."""
    if gauge is None:
        return used_at
    return max(gauge.changed_at, used_at) if gauge.is_quiet else None


def channel_name(channel: Channel) -> str:
    return f"{channel.connection.name} ({channel.number})"


def given_name(connection: Connection) -> Any:
    """What the client calls itself (`connection_name`), or None."""
    return connection.user_provided_name or None


def connection_details(connection: Connection) -> dict[str, Any]:
    """The part of a connection that its channels show."""
    return {
        "name": connection.name,
        "user_provided_name": given_name(connection),
        "peer_host": connection.peer[0],
        "peer_port": connection.peer[1],
    }


def channel_details(channel: Channel) -> dict[str, Any]:
    """The part of a channel that its consumers show."""
    connection = channel.connection
    return {
        **connection_details(connection),
        "connection_name": connection.name,
        "name": channel_name(channel),
        "node": None,
        "number": channel.number,
        "user": name_of(connection.user),
    }


def consumer_fields(view: View) -> dict[str, Read]:
    """The fields of a consumer as RabbitMQ shows it, with `unacked` and `trouble`."""
    config, node = view.broker.config, view.broker.node_name
    return {
        "consumer_tag": lambda consumer: consumer.tag,
        "queue": lambda consumer: {
            "name": consumer.queue.name,
            "vhost": consumer.queue.vhost_name,
        },
        "channel_details": lambda consumer: {**channel_details(consumer.channel), "node": node},
        "ack_required": lambda consumer: consumer.ack_required,
        "exclusive": lambda consumer: consumer.exclusive,
        "prefetch_count": lambda consumer: consumer.prefetch_count,
        "active": _is_active,
        "activity_status": _activity,
        "arguments": lambda consumer: consumer.arguments,
        "priority": lambda consumer: consumer.priority,
        "consumer_timeout": lambda consumer: (
            timeout_of(consumer.queue, config.consumer_timeout) or None
        ),
        "unacked": lambda consumer: consumer.unacked,
        "trouble": lambda consumer: troubles.of_consumer(
            consumer, view.stats.gauge("channel", consumer.channel), view.now, view.stuck_after
        ),
    }


def _is_active(consumer: Any) -> bool:
    # Of a queue with a single active consumer, the others wait.
    only = consumer.queue.single_active_consumer
    return bool(consumer.active and (only is None or only is consumer))


def _activity(consumer: Any) -> str:
    if consumer.queue.single_active_consumer is consumer:
        return "single_active"
    return "up" if _is_active(consumer) else "waiting"


def reader_facts(consumer: Any) -> dict[str, Any]:
    """What a consumer of a stream has besides."""
    queue = consumer.queue
    return {"stream": queue.reader_figures()} if queue.type == "stream" else {}


def consumer_row(view: View, consumer: Any) -> dict[str, Any]:
    """The row of a consumer."""
    row = {name: read(consumer) for name, read in consumer_fields(view).items()}
    return row | reader_facts(consumer)
