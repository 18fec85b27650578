"""What another broker can read of a definitions document: one row for each.

The facts are those of the brokers' sources: RabbitMQ 3.10.8 and 4.3 (`rabbit_policies.erl`,
`rabbit_amqqueue.erl`, `rabbit_definitions.erl` and `capabilities/0` of the queue types), LavinMQ
2.9.1 (`definitions.cr`, `policy.cr`, `auth/user.cr`). Those of 3.10.8 are tried live in
tests/definitions/test_rabbitmq.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker.access.passwords import BCRYPT, MD5, SHA256, SHA512

TEN_YEARS_MS = 315_360_000_000
"""RabbitMQ's longest time of an expiry."""

DELAYED = "x-delayed-message"


class Target(NamedTuple):
    """One broker. `plugins` names what an exchange type, a component or a policy key needs there;
    `arguments` the known arguments by queue type: one that is known and not of the type is refused;
    `values` tells whether it takes a value of an argument or a policy key."""

    name: str
    hashes: frozenset[str]
    exchange_types: frozenset[str]
    plugins: Mapping[str, str]
    arguments: Mapping[str, frozenset[str]]
    policy_keys: frozenset[str]
    operator_keys: frozenset[str]
    apply_to: frozenset[str]
    components: frozenset[str] | None
    values: Mapping[str, Callable[[Any], bool]]
    transient_queues: bool = True
    server_names: bool = False
    topic_permissions: bool = True
    user_limits: bool = True
    vhost_properties: bool = True
    tags: frozenset[str] | None = None
    priority_most: int = 2**31 - 1
    queue_type_beside: bool = False


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values and not isinstance(value, bool)


def _whole(least: int, most: int | None = None) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and value >= least and (most is None or value <= most)

    return fits


_CLASSIC = """x-expires x-message-ttl x-dead-letter-exchange x-dead-letter-routing-key x-max-length
    x-max-length-bytes x-max-priority x-overflow x-queue-mode x-queue-version
    x-single-active-consumer x-queue-type x-queue-master-locator"""
_QUORUM = """x-dead-letter-exchange x-dead-letter-routing-key x-dead-letter-strategy x-expires
    x-max-length x-max-length-bytes x-max-in-memory-length x-max-in-memory-bytes x-overflow
    x-single-active-consumer x-queue-type x-quorum-initial-group-size x-delivery-limit x-message-ttl
    x-queue-leader-locator"""
_STREAM = """x-max-length-bytes x-queue-type x-max-age x-stream-max-segment-size-bytes
    x-initial-cluster-size x-queue-leader-locator"""

_KEYS = """alternate-exchange dead-letter-exchange dead-letter-routing-key dead-letter-strategy
    message-ttl expires max-length max-length-bytes max-in-memory-length max-in-memory-bytes
    queue-mode queue-version overflow delivery-limit max-age stream-max-segment-size-bytes
    queue-leader-locator initial-cluster-size queue-master-locator
    federation-upstream federation-upstream-set federation-upstream-pattern"""
_OPERATOR_KEYS = """expires message-ttl max-length max-length-bytes max-in-memory-length
    max-in-memory-bytes delivery-limit"""

_FEDERATION = "rabbitmq_federation"
_PLUGINS = {
    "x-consistent-hash": "rabbitmq_consistent_hash_exchange",
    "x-random": "rabbitmq_random_exchange",
    "shovel": "rabbitmq_shovel",
    "federation-upstream": _FEDERATION,
    "federation-upstream-set": _FEDERATION,
    "federation-upstream-pattern": _FEDERATION,
}
_TYPES = _set("direct fanout topic headers x-consistent-hash x-random")
_COMPONENTS = _set(
    "shovel federation-upstream federation-upstream-set vhost-limits operator_policy"
)
_LOCATORS = _one_of("client-local", "balanced", "random", "least-leaders")
_VALUES: dict[str, Callable[[Any], bool]] = {
    "x-expires": _whole(1, TEN_YEARS_MS),
    "x-message-ttl": _whole(0, TEN_YEARS_MS),
    "x-queue-version": _one_of(1, 2),
    "x-queue-leader-locator": _LOCATORS,
    "x-dead-letter-strategy": _one_of("at-most-once", "at-least-once"),
    "x-initial-cluster-size": _whole(1),
    "x-quorum-initial-group-size": _whole(1),
    "queue-leader-locator": _LOCATORS,
    "queue-master-locator": _one_of("client-local", "min-masters", "random"),
}

RABBITMQ_3 = Target(
    name="rabbitmq-3",
    hashes=frozenset({SHA256, SHA512, MD5}),
    exchange_types=_TYPES,
    plugins=_PLUGINS,
    arguments={"classic": _set(_CLASSIC), "quorum": _set(_QUORUM), "stream": _set(_STREAM)},
    policy_keys=_set(_KEYS) | _set("ha-mode ha-params ha-sync-mode ha-sync-batch-size "
                                   "ha-promote-on-shutdown ha-promote-on-failure"),
    operator_keys=_set(_OPERATOR_KEYS),
    apply_to=_set("all queues exchanges"),
    components=_COMPONENTS,
    values={
        **_VALUES,
        "x-queue-mode": _one_of("default", "lazy"),
        "delivery-limit": _whole(0),
        "ha-mode": _one_of("all", "exactly", "nodes"),
        "ha-sync-mode": _one_of("manual", "automatic"),
        "ha-promote-on-shutdown": _one_of("always", "when-synced"),
        "ha-promote-on-failure": _one_of("always", "when-synced"),
    },
)  # fmt: skip

RABBITMQ_4 = Target(
    name="rabbitmq-4",
    hashes=frozenset({SHA256, SHA512, MD5}),
    exchange_types=_TYPES,
    plugins=_PLUGINS,
    arguments={
        "classic": _set(_CLASSIC) | _set("x-queue-leader-locator"),
        "quorum": _set(_QUORUM) | _set("x-consumer-timeout"),
        "stream": _set(_STREAM) | _set("x-stream-filter-size-bytes"),
    },
    policy_keys=_set(_KEYS) | _set("consumer-timeout stream-filter-size-bytes target-group-size"),
    operator_keys=_set(_OPERATOR_KEYS)
    | _set("overflow queue-version queue-master-locator target-group-size"),
    apply_to=_set("all queues exchanges classic_queues quorum_queues streams"),
    components=_COMPONENTS,
    values=_VALUES,
    transient_queues=False,
    queue_type_beside=True,
)

_LAVINMQ_KEYS = _set(
    """max-length max-length-bytes message-ttl expires overflow dead-letter-exchange
    dead-letter-routing-key federation-upstream federation-upstream-set delivery-limit max-age
    alternate-exchange delayed-message"""
)

LAVINMQ = Target(
    name="lavinmq",
    hashes=frozenset({SHA256, SHA512, MD5, BCRYPT}),
    exchange_types=_set(f"direct fanout topic headers x-consistent-hash {DELAYED}"),
    plugins={},
    arguments={},
    policy_keys=_LAVINMQ_KEYS,
    operator_keys=_LAVINMQ_KEYS,
    apply_to=RABBITMQ_4.apply_to,
    components=None,
    values={},
    server_names=True,
    topic_permissions=False,
    user_limits=False,
    vhost_properties=False,
    tags=_set("administrator monitoring management policymaker impersonator"),
    priority_most=127,
)

TARGETS = {
    "rabbitmq": RABBITMQ_4,
    "rabbitmq-3": RABBITMQ_3,
    "rabbitmq-4": RABBITMQ_4,
    "lavinmq": LAVINMQ,
}
"""By the names that a user gives; `rabbitmq` is the newest."""
