"""The control socket: how the web process, the reports and tools ask the broker."""

from broker.server.control import (
    admin_verbs,
    backup_verbs,
    consumer_verbs,
    definitions_verbs,
    delayed_verbs,
    feature_flags,
    health_verbs,
    lists,
    messaging_verbs,
    node_verbs,
    parameter_verbs,
    peek_verbs,
    policy_verbs,
    problems,
    sign_in_verbs,
    stream_verbs,
    subscriptions,
)
from broker.server.control.server import ControlServer

__all__ = [
    "ControlServer",
    "admin_verbs",
    "backup_verbs",
    "consumer_verbs",
    "definitions_verbs",
    "delayed_verbs",
    "feature_flags",
    "health_verbs",
    "lists",
    "messaging_verbs",
    "node_verbs",
    "parameter_verbs",
    "peek_verbs",
    "policy_verbs",
    "problems",
    "sign_in_verbs",
    "stream_verbs",
    "subscriptions",
]
