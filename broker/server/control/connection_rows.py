"""Connections and channels as RabbitMQ's API shows them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.kernel.through import Through, long_list
from broker.schema.control_schema import Item, List
from broker.server.control.figures import counters_in, details, message_stats, watched
from broker.server.control.flow_rows import Flows
from broker.server.control.requests import Caller
from broker.server.control.rosters import in_order
from broker.server.control.views import (
    Part,
    Read,
    View,
    channel_name,
    connection_details,
    consumer_row,
    given_name,
    idle_facts,
    name_of,
)
from broker.server.pace import Pace
from broker.stats.gauges import CHANNEL_COUNTERS, DELIVERING
from broker.stats.ordering import CHANNEL_FIGURES, channel_figures

if TYPE_CHECKING:
    from broker.vhosts.vhost import VHost
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection

_ids: dict[str, int] = {}
"""Ids of connections by name; checked at each use, since names come and go."""


def shown_name(connection: Connection) -> str:
    """What pages call a connection: what its client does, or its addresses."""
    return str(connection.user_provided_name or connection.name)


CONNECTION_FIELDS: dict[str, Read] = {
    "name": attrgetter("name"),
    "type": lambda connection: "network",
    "user": lambda connection: name_of(connection.user),
    "user_who_performed_action": lambda connection: name_of(connection.user),
    "vhost": lambda connection: name_of(connection.vhost),
    "state": attrgetter("state"),
    "protocol": attrgetter("protocol"),
    "auth_mechanism": attrgetter("auth_mechanism"),
    "channels": lambda connection: len(connection.channels),
    "channel_max": attrgetter("channel_max"),
    "frame_max": attrgetter("output.frame_max"),
    "timeout": attrgetter("heartbeat"),
    "connected_at": attrgetter("connected_at_ms"),
    "client_properties": attrgetter("client_properties"),
    "user_provided_name": given_name,
    "host": lambda connection: connection.local[0],
    "port": lambda connection: connection.local[1],
    "peer_host": lambda connection: connection.peer[0],
    "peer_port": lambda connection: connection.peer[1],
    "ssl": lambda connection: bool(connection.tls),
    "send_pend": attrgetter("output.send_pend"),
    "recv_oct": attrgetter("recv_oct"),
    "send_oct": attrgetter("output.send_oct"),
    "recv_cnt": attrgetter("recv_cnt"),
    "send_cnt": attrgetter("output.send_cnt"),
}
"""The fields of a connection that are read of it alone."""

_RATES = frozenset(("recv_oct_details", "send_oct_details"))

WITHOUT_TLS = dict.fromkeys(
    (
        "ssl_protocol",
        "ssl_cipher",
        "ssl_hash",
        "ssl_key_exchange",
        "peer_cert_issuer",
        "peer_cert_subject",
        "peer_cert_validity",
    )
)
"""What is known of its encryption: nothing."""


def _tls_facts(connection: Connection) -> dict[str, Any]:
    return WITHOUT_TLS if connection.tls is None else WITHOUT_TLS | connection.tls.facts


class Connections(View):
    """The noun `connections`."""

    noun = "connections"
    kind = "connection"
    are_clients = True
    kept_order = ("name",)
    fixed = frozenset(("name", "user", "vhost", "user_provided_name", "connected_at"))

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for connection in Through(self.broker.connections.values()):
            is_wanted = (args.vhost is None or name_of(connection.vhost) == args.vhost) and (
                args.user is None or name_of(connection.user) == args.user
            )
            yield connection if is_wanted else None

    def place(self, thing: Any) -> str | None:
        owner: str | None = name_of(thing.user)
        return owner

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        return self.by_name(args.name or "")

    def by_name(self, name: str) -> Any | None:
        """The connection of that name; an index from name to id saves most searches."""
        connections = self.broker.connections
        found = connections.get(_ids.get(name, 0))
        if found is not None and found.name == name:
            return found
        _ids.clear()
        _ids.update((connection.name, id) for id, connection in connections.items())
        return connections.get(_ids.get(name, 0))

    has_client_name = True

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def client_name(self, thing: Any) -> str:
        return str(thing.user_provided_name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "user_provided_name":
            return shown_name
        if field in ("user", "vhost"):
            return lambda connection: name_of(getattr(connection, field)) or ""
        if field in ("name", "state", "protocol", "recv_oct", "send_oct", "frame_max"):
            return CONNECTION_FIELDS[field]
        if field == "channels":
            return lambda connection: len(connection.channels)
        if field == "connected_at":
            return lambda connection: connection.connected_at_ms
        if field in ("recv_oct_details.rate", "send_oct_details.rate"):
            return partial(self._rate, name=field.removesuffix("_details.rate"))
        return None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        if args.disable_stats:
            return {
                "name": thing.name,
                "node": self.broker.node_name,
                "user": name_of(thing.user),
                "vhost": name_of(thing.vhost),
            }
        return self.builder(args)(thing)

    def fields(self) -> dict[str, Read]:
        return CONNECTION_FIELDS | {"node": lambda connection: self.broker.node_name}

    def parts(self, args: List | Item, columns: list[str] | None) -> list[Part]:
        age = args.ages.get("data_rates")

        def rates(connection: Connection) -> dict[str, Any]:
            gauge = watched(self.stats, "connection", connection, args.ages)
            return {
                f"{name}_details": details(name, gauge, age, self.now)
                for name in ("recv_oct", "send_oct")
            }

        return [Part(_RATES, rates), Part(frozenset(WITHOUT_TLS), _tls_facts)]

    def live(self, thing: Any) -> dict[str, Any]:
        return {
            "state": thing.state,
            "channels": len(thing.channels),
            "recv_oct": thing.recv_oct,
            "send_oct": thing.output.send_oct,
            "recv_oct_details.rate": self._rate(thing, "recv_oct"),
            "send_oct_details.rate": self._rate(thing, "send_oct"),
        }

    def _rate(self, connection: Connection, name: str) -> float:
        gauge = self.stats.gauge("connection", connection)
        return gauge.rate(name) if gauge is not None else 0.0


def _channel_state(channel: Channel) -> str:
    """RabbitMQ's word: in flow while nothing more is read of its connection."""
    if channel.closing:
        return "closing"
    connection = channel.connection
    return "flow" if connection.paused or connection.blocked else "running"


CHANNEL_FIELDS: dict[str, Read] = {
    "name": channel_name,
    "number": attrgetter("number"),
    "user": lambda channel: name_of(channel.connection.user),
    "user_who_performed_action": lambda channel: name_of(channel.connection.user),
    "vhost": lambda channel: name_of(channel.connection.vhost),
    "connection_details": lambda channel: connection_details(channel.connection),
    "state": _channel_state,
    "transactional": lambda channel: channel.transaction is not None,
    "confirm": attrgetter("confirm"),
    "consumer_count": lambda channel: len(channel.deliveries.consumers),
    "messages_unacknowledged": attrgetter("messages_unacknowledged"),
    "messages_unconfirmed": attrgetter("messages_unconfirmed"),
    "messages_uncommitted": attrgetter("messages_uncommitted"),
    "message_bytes_uncommitted": attrgetter("message_bytes_uncommitted"),
    "acks_uncommitted": attrgetter("acks_uncommitted"),
    "pending_raft_commands": lambda channel: 0,
    "prefetch_count": attrgetter("prefetch_count"),
    "global_prefetch_count": attrgetter("global_prefetch_count"),
}
"""The fields of a channel that are read of it alone."""

DETAILS_KEYS: dict[str, Read] = {
    "connection_details.name": attrgetter("connection.name"),
    "connection_details.user_provided_name": lambda channel: shown_name(channel.connection),
    "connection_details.peer_host": lambda channel: channel.connection.peer[0],
    "connection_details.peer_port": lambda channel: channel.connection.peer[1],
}
"""What channels are sorted by for a field of `connection_details`."""

LEAN_CHANNEL = (
    "name",
    "number",
    "node",
    "user",
    "user_who_performed_action",
    "vhost",
    "connection_details",
)
"""What a row without figures has."""


def _before_channels(connection: Connection) -> str:
    """What the names of a connection's channels begin with."""
    return f"{connection.name} ("


def _behind_name(channel: Channel) -> str:
    """What they end with."""
    return f"{channel.number})"


class Channels(View):
    """The noun `channels`, by the rules of connections."""

    noun = "channels"
    kind = "channel"
    are_clients = True
    kept_order = ("name",)
    fixed = frozenset(("name", "user", "vhost", "number", *DETAILS_KEYS))
    figures = CHANNEL_FIGURES

    async def in_kept_order(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        if args.connection is not None:
            return await super().in_kept_order(caller, args, pace)
        # A user who may see the connection may see its channels.
        connections = Connections(self.broker)
        found: list[Any] = long_list()
        for connection in await in_order(
            await connections.gathered(caller, args, pace), _before_channels, pace
        ):
            channels = connection.channels.values()
            found += channels if len(channels) < 2 else sorted(channels, key=_behind_name)
            await pace()
        return found

    def read_figures(
        self, things: list[Any], field: str, start: int, stop: int, found: array[float]
    ) -> None:
        channel_figures(things, field, start, stop, found)

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for connection in Connections(self.broker).candidates(vhosts, args):
            if connection is None or args.connection not in (None, connection.name):
                yield None
                continue
            yield from list(connection.channels.values())

    def place(self, thing: Any) -> str | None:
        owner: str | None = name_of(thing.connection.user)
        return owner

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        return self.by_name(args.name or "")

    def by_name(self, name: str) -> Any | None:
        """The channel of that name."""
        connection_name, _, number = name.rpartition(" (")
        connection = Connections(self.broker).by_name(connection_name)
        digits = number.removesuffix(")")
        is_number = digits.isascii() and digits.isdecimal() and len(digits) < 6
        if connection is None or not is_number:
            return None
        return connection.channels.get(int(digits))

    has_client_name = True

    def name(self, thing: Any) -> str:
        return channel_name(thing)

    def client_name(self, thing: Any) -> str:
        return str(thing.connection.user_provided_name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "name":
            return channel_name
        if field in ("user", "vhost"):
            return lambda channel: name_of(getattr(channel.connection, field)) or ""
        if field == "consumer_count":
            return lambda channel: len(channel.deliveries.consumers)
        if field in ("number", "messages_unacknowledged", "messages_unconfirmed", "prefetch_count"):
            return attrgetter(field)
        return DETAILS_KEYS.get(field)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        if args.disable_stats:
            fields = self.fields()
            return {name: fields[name](thing) for name in LEAN_CHANNEL}
        return self.builder(args)(thing)

    def fields(self) -> dict[str, Read]:
        return CHANNEL_FIELDS | {"node": lambda channel: self.broker.node_name}

    def parts(self, args: List | Item, columns: list[str] | None) -> list[Part]:
        names = counters_in(columns, CHANNEL_COUNTERS)

        def idle(channel: Channel) -> dict[str, Any]:
            return idle_facts(self.stats.gauge("channel", channel), channel.opened_at)

        def counted(channel: Channel) -> dict[str, Any]:
            gauge = watched(self.stats, "channel", channel, args.ages)
            counters = channel.counters()
            return {"message_stats": message_stats(names, counters, gauge, args.ages, self.now)}

        return [
            Part(frozenset(("idle_since",)), idle),
            Part(frozenset(("message_stats",)), counted),
        ]

    def item(self, thing: Any, args: Item) -> dict[str, Any]:
        row = self.row(thing, args)
        if args.disable_stats:
            return row
        consumers = list(thing.deliveries.consumers.values())
        row["consumer_details"] = [consumer_row(self, consumer) for consumer in consumers]
        flows = Flows(self)
        row["publishes"] = flows.from_channel(thing)
        row["deliveries"] = flows.deliveries(consumers, "queue")
        return row

    def live(self, thing: Any) -> dict[str, Any]:
        gauge = self.stats.gauge("channel", thing)
        live: dict[str, Any] = {
            "consumer_count": len(thing.deliveries.consumers),
            "messages_unacknowledged": thing.messages_unacknowledged,
            "messages_unconfirmed": thing.messages_unconfirmed,
            "prefetch_count": thing.prefetch_count,
        }
        for name in ("publish", "confirm", "ack"):
            rate = gauge.rate(name) if gauge is not None else 0.0
            live[f"message_stats.{name}_details.rate"] = rate
        live["message_stats.deliver_get_details.rate"] = (
            gauge.rate_of(DELIVERING) if gauge is not None else 0.0
        )
        return live
