"""The exchange types by name: one line each."""

from __future__ import annotations

from broker.routing.consistent_hash import ConsistentHashExchange
from broker.routing.direct import DirectExchange
from broker.routing.exchange import BoundExchange
from broker.routing.fanout import FanoutExchange
from broker.routing.headers import HeadersExchange
from broker.routing.random import RandomExchange
from broker.routing.topic import TopicExchange

TYPES: dict[str, type[BoundExchange]] = {
    each.type: each
    for each in (
        DirectExchange,
        FanoutExchange,
        TopicExchange,
        HeadersExchange,
        ConsistentHashExchange,
        RandomExchange,
    )
}

# Types that RabbitMQ and LavinMQ know and this broker does not carry out yet.
NOT_BUILT = frozenset({"x-delayed-message", "x-recent-history", "x-modulus-hash"})

# Declared in every vhost.
PREDECLARED = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
)
