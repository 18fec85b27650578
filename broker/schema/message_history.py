"""The names of a vhost's history of messages (docs/history.md)."""

from __future__ import annotations

HISTORY = "amq.history"
"""The stream that holds it, in each vhost that has one."""

LEVELS = ("off", "headers", "full")

PREFIX = "x-history-"
"""Headers that begin so are the broker's in a record; those that a publisher wrote are left out."""

USER = f"{PREFIX}user"
CONNECTION = f"{PREFIX}connection"
QUEUES = f"{PREFIX}queues"
QUEUE_COUNT = f"{PREFIX}queue-count"
OUTCOME = f"{PREFIX}outcome"
BYTES = f"{PREFIX}bytes"
BODY = f"{PREFIX}body"

ROUTED, UNROUTABLE, REFUSED, DELAYED = "routed", "unroutable", "refused", "delayed"

QUEUES_MAX = 64
"""Names of queues in one record; `QUEUE_COUNT` says how many there were."""
