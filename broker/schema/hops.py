"""How federated messages and bindings say where they have been, in RabbitMQ's words: the broker
reads it as an upstream, the process `bridges` writes and reads it as a downstream.

A broker is named by its cluster name and the virtual host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECEIVED_FROM = "x-received-from"
"""Header of a message: a table for each link that it came over, the last one first."""
BOUND_FROM = "x-bound-from"
"""Argument of a mirrored binding: a table for each link, the last one first."""
PURPOSE = "x-internal-purpose"
FEDERATION = "federation"
TYPE = "x-federation-upstream"
"""The exchange type that a downstream declares at its upstream."""
MAX_HOPS = "x-max-hops"
DOWNSTREAM_NAME = "x-downstream-name"
DOWNSTREAM_VHOST = "x-downstream-vhost"


def trail(value: Any) -> list[Mapping[str, Any]]:
    """The tables of a header or argument; a client may have sent anything in it."""
    if not isinstance(value, list | tuple):
        return []
    return [each for each in value if isinstance(each, Mapping)]


def has_seen(passed: list[Mapping[str, Any]], cluster: Any, vhost: Any) -> bool:
    """Whether one of the tables names this broker. RabbitMQ before 3.8.9 names no virtual host."""
    if cluster is None:
        return False
    for each in passed:
        there = each.get("vhost")
        if each.get("cluster-name") == cluster and (
            vhost is None or there is None or there == vhost
        ):
            return True
    return False


def may_forward(headers: Mapping[str, Any], max_hops: int, cluster: Any, vhost: Any) -> bool:
    """Whether a message may go over one more link, to this broker."""
    value = headers.get(RECEIVED_FROM)
    if not isinstance(value, list | tuple):
        return True
    return len(value) < max_hops and not has_seen(trail(value), cluster, vhost)


def hops_of(arguments: Mapping[str, Any], max_hops: int, cluster: Any, vhost: Any) -> int:
    """How many hops a message may still make along a binding with these arguments when it is
    mirrored to an upstream of this name; 0: the binding goes no further."""
    passed = trail(arguments.get(BOUND_FROM))
    if not passed:
        return max_hops
    if has_seen(passed, cluster, vhost):
        return 0
    before = passed[0].get("hops")
    return max(0, min((before if isinstance(before, int) else 1) - 1, max_hops))
