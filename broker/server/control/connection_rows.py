"""Connections, channels and consumers as RabbitMQ's API shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from broker.control_schema import Item, List
from broker.server.control import troubles
from broker.server.control.encoding import full_name
from broker.server.control.figures import details, message_stats, watched
from broker.server.control.flow_rows import Flows
from broker.server.control.requests import Caller, not_found
from broker.server.control.views import (
    View,
    channel_name,
    connection_details,
    consumer_row,
    given_name,
    idle_facts,
    name_of,
)
from broker.stats.gauges import CHANNEL_COUNTERS, DELIVERING

_ids: dict[str, int] = {}
"""Ids of connections by name; checked at each use, since names come and go."""


class Connections(View):
    """The noun `connections`."""

    noun = "connections"
    kind = "connection"

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for connection in list(self.broker.connections.values()):
            if args.vhost is not None and name_of(connection.vhost) != args.vhost:
                continue
            if args.user is not None and name_of(connection.user) != args.user:
                continue
            yield connection

    def place(self, thing: Any) -> str | None:
        owner: str | None = name_of(thing.user)
        return owner

    def locate(self, vhost: Any, args: Item) -> Any | None:
        return self.by_name(args.name or "")

    def by_name(self, name: str) -> Any | None:
        """The connection of that name; an index from name to id saves most searches."""
        connections = self.broker.connections
        found = connections.get(_ids.get(name))
        if found is not None and found.name == name:
            return found
        _ids.clear()
        _ids.update((connection.name, id) for id, connection in connections.items())
        return connections.get(_ids.get(name))

    has_client_name = True

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def client_name(self, thing: Any) -> str:
        return str(given_name(thing) or "")

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "user_provided_name":
            return lambda connection: str(given_name(connection) or connection.name)
        if field in ("user", "vhost"):
            return lambda connection: name_of(getattr(connection, field)) or ""
        if field in ("name", "state", "protocol", "recv_oct", "send_oct", "frame_max"):
            return lambda connection: getattr(connection, field)
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
        gauge = watched(self.stats, "connection", thing, args.ages)
        ages = args.ages.get("data_rates")
        row: dict[str, Any] = {
            "name": thing.name,
            "node": self.broker.node_name,
            "type": "network",
            "user": name_of(thing.user),
            "user_who_performed_action": name_of(thing.user),
            "vhost": name_of(thing.vhost),
            "state": thing.state,
            "protocol": thing.protocol,
            "auth_mechanism": thing.auth_mechanism,
            "channels": len(thing.channels),
            "channel_max": thing.channel_max,
            "frame_max": thing.frame_max,
            "timeout": thing.heartbeat,
            "connected_at": thing.connected_at_ms,
            "client_properties": thing.client_properties,
            "user_provided_name": given_name(thing),
            "host": thing.local[0],
            "port": thing.local[1],
            "peer_host": thing.peer[0],
            "peer_port": thing.peer[1],
            "ssl": bool(thing.tls),
            "ssl_protocol": None,
            "ssl_cipher": None,
            "ssl_hash": None,
            "ssl_key_exchange": None,
            "peer_cert_issuer": None,
            "peer_cert_subject": None,
            "peer_cert_validity": None,
            "send_pend": thing.send_pend,
        }
        if thing.tls is not None:
            row.update(thing.tls.facts)
        for name in ("recv_oct", "send_oct", "recv_cnt", "send_cnt"):
            row[name] = getattr(thing, name)
            if name.endswith("oct"):
                row[f"{name}_details"] = details(name, gauge, ages, self.now)
        return row

    def live(self, thing: Any) -> dict[str, Any]:
        return {
            "state": thing.state,
            "channels": len(thing.channels),
            "recv_oct": thing.recv_oct,
            "send_oct": thing.send_oct,
            "recv_oct_details.rate": self._rate(thing, "recv_oct"),
            "send_oct_details.rate": self._rate(thing, "send_oct"),
        }

    def _rate(self, connection: Any, name: str) -> float:
        gauge = self.stats.gauge("connection", connection)
        return gauge.rate(name) if gauge is not None else 0.0


class Channels(View):
    """The noun `channels`, by the rules of connections."""

    noun = "channels"
    kind = "channel"

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for connection in Connections(self.broker).candidates(vhosts, args):
            if args.connection is not None and connection.name != args.connection:
                continue
            yield from list(connection.channels.values())

    def place(self, thing: Any) -> str | None:
        owner: str | None = name_of(thing.connection.user)
        return owner

    def locate(self, vhost: Any, args: Item) -> Any | None:
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
        return str(given_name(thing.connection) or "")

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "connection_details.user_provided_name":
            return lambda channel: str(given_name(channel.connection) or channel.connection.name)
        if field == "name":
            return channel_name
        if field in ("user", "vhost"):
            return lambda channel: name_of(getattr(channel.connection, field)) or ""
        if field == "consumer_count":
            return lambda channel: len(channel.consumers)
        if field in ("number", "messages_unacknowledged", "messages_unconfirmed", "prefetch_count"):
            return lambda channel: getattr(channel, field)
        return None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        connection = thing.connection
        row = {
            "name": channel_name(thing),
            "number": thing.number,
            "node": self.broker.node_name,
            "user": name_of(connection.user),
            "user_who_performed_action": name_of(connection.user),
            "vhost": name_of(connection.vhost),
            "connection_details": connection_details(connection),
        }
        if args.disable_stats:
            return row
        gauge = watched(self.stats, "channel", thing, args.ages)
        return row | {
            "state": _channel_state(thing),
            **idle_facts(gauge, thing.opened_at),
            "transactional": thing.transactional,
            "confirm": thing.confirm,
            "consumer_count": len(thing.consumers),
            "messages_unacknowledged": thing.messages_unacknowledged,
            "messages_unconfirmed": thing.messages_unconfirmed,
            "messages_uncommitted": thing.messages_uncommitted,
            "message_bytes_uncommitted": thing.message_bytes_uncommitted,
            "acks_uncommitted": thing.acks_uncommitted,
            "pending_raft_commands": 0,
            "prefetch_count": thing.prefetch_count,
            "global_prefetch_count": thing.global_prefetch_count,
            "message_stats": message_stats(
                CHANNEL_COUNTERS, thing.counters(), gauge, args.ages, self.now
            ),
        }

    def item(self, thing: Any, args: Item) -> dict[str, Any]:
        row = self.row(thing, args)
        if args.disable_stats:
            return row
        consumers = list(thing.consumers.values())
        row["consumer_details"] = [consumer_row(self, consumer) for consumer in consumers]
        flows = Flows(self)
        row["publishes"] = flows.from_channel(thing)
        row["deliveries"] = flows.deliveries(consumers, "queue")
        return row

    def live(self, thing: Any) -> dict[str, Any]:
        gauge = self.stats.gauge("channel", thing)
        live: dict[str, Any] = {
            "consumer_count": len(thing.consumers),
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


def _channel_state(channel: Any) -> str:
    """RabbitMQ's word: in flow while nothing more is read of its connection."""
    if channel.closing:
        return "closing"
    connection = channel.connection
    return "flow" if connection.paused or connection.blocked else "running"


class Consumers(View):
    """The noun `consumers`, by vhost. A row key is the channel's name and the tag."""

    noun = "consumers"

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for vhost in vhosts:
            queues = list(vhost.queues.values())
            if args.queue is not None:
                queue = vhost.queues.get(full_name(vhost.queues, args.queue))
                queues = [queue] if queue is not None else []
            for queue in queues:
                if not queue.consumer_count:
                    continue
                for consumer in list(queue.consumers):
                    channel = consumer.channel
                    if args.connection not in (None, channel.connection.name):
                        continue
                    if args.channel is not None and channel_name(channel) != args.channel:
                        continue
                    yield consumer

    def place(self, thing: Any) -> str:
        return str(thing.queue.vhost_name)

    def by_key(self, caller: Caller, channel: str, tag: str) -> Any:
        """The consumer of a channel. Raises RequestError 404."""
        found = Channels(self.broker).by_name(channel)
        consumer = found.consumers.get(tag) if found is not None else None
        if consumer is None or not self.shows(caller, consumer):
            raise not_found(self.missing)
        return consumer

    has_client_name = True

    def client_name(self, thing: Any) -> str:
        return str(given_name(thing.channel.connection) or "")

    def name(self, thing: Any) -> str:
        return str(thing.tag)

    def trouble(self, thing: Any) -> str:
        gauge = self.stats.gauge("channel", thing.channel)
        return troubles.of_consumer(thing, gauge, self.now, self.stuck_after)

    def order(self, thing: Any) -> Any:
        return (thing.queue.vhost_name, thing.queue.name, thing.tag)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "channel_details.user_provided_name":
            return lambda one: str(
                given_name(one.channel.connection) or one.channel.connection.name
            )
        if field == "trouble":
            return lambda consumer: (troubles.RANK[self.trouble(consumer)], -consumer.unacked)
        if field == "consumer_tag":
            return lambda consumer: consumer.tag
        if field == "queue.name":
            return lambda consumer: consumer.queue.name
        if field in ("prefetch_count", "ack_required", "exclusive", "active", "unacked"):
            return lambda consumer: getattr(consumer, field)
        return None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        return consumer_row(self, thing)

    def live(self, thing: Any) -> dict[str, Any]:
        return {
            "active": thing.active,
            "unacked": thing.unacked,
            "prefetch_count": thing.prefetch_count,
            "trouble": self.trouble(thing),
        }
