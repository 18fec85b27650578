"""How each noun is listed, found, sorted and shown. One subclass of `View` for each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from typing import Any

from broker.columns import chosen
from broker.control_schema import NOUNS, Item, List
from broker.server.control import troubles
from broker.server.control.encoding import Pace
from broker.server.control.requests import Caller, not_found
from broker.stats import Gauge, Stats
from broker.wire.ack_timeouts import timeout_of

ITEMS_PER_LOOK = 32
"""So many cheap steps between two looks at the clock."""


class View:
    """One noun, as of now. Things are whatever `candidates` yields; which of them a caller sees is
    decided by `broker.sight` with the noun's rule, here and nowhere in a subclass."""

    noun = ""

    missing = "Not Found"
    """The reason of the 404."""

    kind = ""
    """The kind of gauge that the things have, if any."""

    kept_order: tuple[str, ...] = ()
    """By which fields `everything` is in order already, the first first; none: in no order."""

    fixed: frozenset[str] = frozenset()
    """Fields, of those that `sort_key` knows, which never change while a thing is there."""

    knows_fields = False
    """Whether `sort_key` knows every field that differs between rows."""

    figures: frozenset[str] = frozenset()
    """Fields that `broker.stats.ordering` reads of these things."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.stats: Stats = broker.stats
        self.now: int = broker.stats.sampled_at
        self.stuck_after: float = broker.config.stuck_after

    def all(self, caller: Caller, args: List) -> Iterable[Any]:
        """The things that the caller may see and the filters of the noun let through. Raises
        RequestError for filters that the caller may not use."""
        if args.secrets:
            caller.require("administrator")
        vhosts = caller.reach(self.noun, args.vhost, args.user)
        for thing in self.candidates(vhosts, args):
            if self.shows(caller, thing):
                yield thing

    def candidates(self, vhosts: list[Any], args: List) -> Iterable[Any]:
        """The things that the filters of the noun let through; in these vhosts, if the noun is
        shown by vhost."""
        raise NotImplementedError

    def place(self, thing: Any) -> str | None:
        """The name of the vhost or the user that the rule of the noun asks about."""
        raise NotImplementedError

    def shows(self, caller: Caller, thing: Any) -> bool:
        """Whether the caller may see the thing."""
        return caller.sight.of_noun(self.noun, self.place(thing))

    async def everything(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        """All of them as a list, in short steps. Raises RequestError as `all` does."""
        found = []
        for place, thing in enumerate(self.all(caller, args)):
            found.append(thing)
            if place % ITEMS_PER_LOOK == 0:
                await pace()
        return found

    def is_kept(self, args: List) -> bool:
        """Whether `everything` is in the kept order for these arguments."""
        return bool(self.kept_order)

    async def words(self, things: list[Any], pace: Pace) -> list[str | None]:
        """The word of trouble of each."""
        found: list[str | None] = []
        for place, thing in enumerate(things):
            found.append(self.trouble(thing))
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

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        """The row of a list."""
        raise NotImplementedError

    def chooser(self, args: List) -> Callable[[Any], dict[str, Any]]:
        """Builds a row, or what the wanted columns name of it, and no more where the noun can."""
        if not args.columns:
            return lambda thing: self.row(thing, args)
        return lambda thing: chosen(self.row(thing, args), args.columns)

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


def channel_name(channel: Any) -> str:
    return f"{channel.connection.name} ({channel.number})"


def given_name(connection: Any) -> Any:
    """What the client calls itself (`connection_name`), or None."""
    client = connection.client_properties
    return client.get("connection_name") if isinstance(client, dict) else None


def connection_details(connection: Any) -> dict[str, Any]:
    """The part of a connection that its channels show."""
    return {
        "name": connection.name,
        "user_provided_name": given_name(connection),
        "peer_host": connection.peer[0],
        "peer_port": connection.peer[1],
    }


def channel_details(channel: Any) -> dict[str, Any]:
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


def consumer_row(view: View, consumer: Any) -> dict[str, Any]:
    """A consumer as RabbitMQ shows it, with `unacked` and `trouble`."""
    queue = consumer.queue
    gauge = view.stats.gauge("channel", consumer.channel)
    # Of a queue with a single active consumer, the others wait.
    only = queue.single_active_consumer
    is_only = only is consumer
    is_active = consumer.active and (only is None or is_only)
    row = {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.name, "vhost": queue.vhost_name},
        "channel_details": {**channel_details(consumer.channel), "node": view.broker.node_name},
        "ack_required": consumer.ack_required,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch_count,
        "active": is_active,
        "activity_status": "single_active" if is_only else "up" if is_active else "waiting",
        "arguments": consumer.arguments,
        "priority": consumer.priority,
        "consumer_timeout": timeout_of(queue, view.broker.config.consumer_timeout) or None,
        "unacked": consumer.unacked,
        "trouble": troubles.of_consumer(consumer, gauge, view.now, view.stuck_after),
    }
    if queue.type == "stream":
        row["stream"] = queue.reader_figures()
    return row
