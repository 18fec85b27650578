"""Tables inside the page of an object: consumers and bindings of a queue, bindings of an exchange,
channels of a connection. Paged, sorted and filtered as the lists are."""

from __future__ import annotations

from django.http import HttpRequest

from frontend import addresses
from frontend.tables import Column, Table, load_within

STATE = Column("trouble", "State", "trouble", phone=True)
CLIENT = Column(
    "channel_details.connection_name",
    "Client",
    "connection-of",
    sort="channel_details.user_provided_name",
)
HELD = (
    Column("unacked", "Unacked", "count", phone=True),
    Column("prefetch_count", "Prefetch", "count", help="0 is no limit", phone=True),
)
_WHO = (
    Column("consumer_tag", "Consumer", "consumer-tag", phone=True),
    STATE,
    CLIENT,
    Column("channel_details.user", "User", sort=None),
    *HELD,
)
_CANCEL = (
    Column("arguments", "Arguments", "arguments", sort=None),
    Column("channel_details.number", "", "cancel", phone=True, sort=None),
)
CONSUMERS = (*_WHO, Column("ack_required", "Acknowledges", "acknowledges"), *_CANCEL)
READERS = (
    *_WHO,
    Column("stream.offset", "Next offset", "count", phone=True, sort=None),
    Column("stream.lag", "Behind", "count", phone=True, sort=None),
    Column(
        "stream.segments_skipped",
        "Skipped",
        "count",
        help="Segments that its filter let it skip",
        sort=None,
    ),
    *_CANCEL,
)
_BOUND = (
    Column("routing_key", "Routing key", "key", phone=True),
    Column("arguments", "Arguments", "arguments", phone=True, sort=None),
    Column("properties_key", "", "unbind", phone=True, sort=None),
)
INCOMING = (Column("source", "From exchange", "binding-source", phone=True), *_BOUND)
CHANNELS = (
    Column("number", "Channel", phone=True),
    Column("confirm", "Mode", "mode", phone=True, sort=None),
    Column("consumer_count", "Consumers", "count", phone=True),
    Column("messages_unacknowledged", "Unacked", "count", phone=True),
    Column("prefetch_count", "Prefetch", "prefetch", phone=True),
)
KEY_LABELS = {"topic": "Pattern", "x-consistent-hash": "Weight"}
"""What a routing key of a binding is to exchanges of these types."""


async def consumers_of(request: HttpRequest, vhost: str, queue: str, is_stream: bool) -> Table:
    """The consumers of a queue, the stuck ones first."""
    columns = READERS if is_stream else CONSUMERS
    table = Table("consumers", columns, {}, "trouble", addresses.queue(vhost, queue, "consumers"))
    also = ("channel_details", "exclusive")
    return await load_within(request, table, also, vhost=vhost, queue=queue)


async def bindings_of_queue(request: HttpRequest, vhost: str, queue: str) -> Table:
    """The bindings whose destination is a queue."""
    address = addresses.queue(vhost, queue, "bindings")
    table = Table("bindings", INCOMING, {}, "source", address)
    ends = {"destination": queue, "destination_type": "queue"}
    return await load_within(request, table, vhost=vhost, **ends)


async def bindings_from(request: HttpRequest, vhost: str, exchange: str, kind: str) -> Table:
    """The bindings whose source is an exchange of a type; the default exchange has no name."""
    key, *others = _BOUND
    key = key._replace(label=KEY_LABELS.get(kind, key.label))
    destination = Column("destination", "Destination", "binding-destination", phone=True)
    columns = (destination, key, *others)
    table = Table("bindings", columns, {}, "destination", addresses.exchange(vhost, exchange))
    return await load_within(request, table, vhost=vhost, source=exchange)


async def bindings_to(request: HttpRequest, vhost: str, exchange: str) -> Table:
    """The bindings whose destination is an exchange."""
    table = Table("bindings", INCOMING, {}, "source", addresses.exchange(vhost, exchange))
    table.prefix = "incoming-"
    ends = {"destination": exchange, "destination_type": "exchange"}
    return await load_within(request, table, vhost=vhost, **ends)


async def channels_of(request: HttpRequest, connection: str) -> Table:
    """The channels of a connection."""
    also = ("user", "transactional", "messages_uncommitted", "message_bytes_uncommitted")
    table = Table("channels", CHANNELS, {}, "number", addresses.connection(connection))
    return await load_within(request, table, also, connection=connection)
