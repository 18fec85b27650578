"""RabbitMQ's feature flags, as far as they stand for something that this broker does or could do.

A flag here is a statement about this build: it cannot be switched. What each asks for is looked up
in the tables, so that an add-on which is taken away takes its flag along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.queues import types as queue_types
from broker.routing.types import TYPES
from broker.schema.control_schema import VERBS, FeatureFlagEnable, FeatureFlags
from broker.server.control.requests import Request, bad_request, handles


def _always() -> bool:
    return True


def _never() -> bool:
    return False


FLAGS: dict[str, tuple[str, Callable[[], bool]]] = {
    "detailed_queues_endpoint": ("A list of queues with all details in the HTTP API", _always),
    "direct_exchange_routing_v2": ("Fast routing of direct exchanges", _always),
    "drop_unroutable_metric": ("Counts unroutable messages that are dropped", _always),
    "empty_basic_get_metric": ("Counts `basic.get` on empty queues", _always),
    "implicit_default_bindings": ("Bindings of the default exchange are not stored", _always),
    "khepri_db": ("Definitions in the Khepri database", _never),
    "maintenance_mode_status": ("A node can be drained for maintenance", _never),
    "message_containers": ("Messages are stored in the format of their protocol", _never),
    "quorum_queue": ("Queues of type quorum", lambda: "quorum" in queue_types.TYPES),
    "rabbit_exchange_type_local_random": (
        "Exchanges of type x-local-random",
        lambda: "x-local-random" in TYPES,
    ),
    "rabbitmq_4.0.0": ("What a node of RabbitMQ 4.0 has to know", _never),
    "stream_filtering": ("Filters of streams", lambda: "stream" in queue_types.TYPES),
    "stream_queue": ("Queues of type stream", lambda: "stream" in queue_types.TYPES),
    "user_limits": ("Limits of users", lambda: "user-limit.put" in VERBS),
    "virtual_host_metadata": ("Descriptions and tags of virtual hosts", _always),
}
"""Name to what it says and whether it is so."""


@handles("feature-flags")
async def feature_flags(request: Request[FeatureFlags]) -> Any:
    return [
        {
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "enabled" if is_so() else "unavailable",
            "stability": "stable",
            "provided_by": "leveret",
        }
        for name, (text, is_so) in FLAGS.items()
    ]


@handles("feature-flag.enable")
async def feature_flag_enable(request: Request[FeatureFlagEnable]) -> Any:
    name = request.args.name
    if name == "all":
        return {}
    if name not in FLAGS:
        raise bad_request(f"unsupported: there is no feature flag '{name[:100]}'")
    if not FLAGS[name][1]():
        raise bad_request(f"unsupported: feature flag '{name}' stands for what Leveret does not do")
    return {}
