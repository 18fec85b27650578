"""The exchange types by name.

A type that is no part of AMQP goes by deleting its files and its line here.
"""

from __future__ import annotations

import importlib

from broker.routing.direct import DirectExchange
from broker.routing.exchange import BoundExchange
from broker.routing.fanout import FanoutExchange
from broker.routing.headers import HeadersExchange
from broker.routing.topic import TopicExchange

# Each is a module here and names its class `EXCHANGE`.
ADDED = (
    "consistent_hash",
    "random",
)

TYPES: dict[str, type[BoundExchange]] = {
    each.type: each
    for each in (
        DirectExchange,
        FanoutExchange,
        TopicExchange,
        HeadersExchange,
        *(importlib.import_module(f"broker.routing.{name}").EXCHANGE for name in ADDED),
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
    ("amq.rabbitmq.trace", "topic"),
)
INTERNAL = frozenset({"amq.rabbitmq.trace"})
"""Of those, the ones that no client publishes to."""
