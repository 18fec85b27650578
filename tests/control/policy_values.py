"""For every policy key a value that it takes and values that it refuses.

`tests/tidy/test_register.py` compares the names with the table of keys in the broker.
"""

from __future__ import annotations

from typing import Any

GOOD: dict[str, Any] = {
    "max-length": 0,
    "max-length-bytes": 1,
    "message-ttl": 0,
    "expires": 1,
    "overflow": "reject-publish",
    "dead-letter-exchange": "dead",
    "dead-letter-routing-key": "",
    "delivery-limit": -1,
    "consumer-timeout": 60_000,
    "confirm-on": "ack",
    "max-age": "7D",
    "alternate-exchange": "other",
    "delayed-message": True,
    "queue-mode": "lazy",
    "queue-version": 2,
    "max-in-memory-length": 1,
    "max-in-memory-bytes": 1,
    "dead-letter-strategy": "at-least-once",
    "stream-max-segment-size-bytes": 1,
    "stream-index": "message_id, header:order_id",
    "history": "off",
    "history-keys": ["message_id"],
    "history-retention": "7D",
    "history-events": True,
    "stream-filter-size-bytes": 16,
    "stream-tier": True,
    "stream-local-max-bytes": 0,
    "stream-local-max-age": "1D",
    "queue-leader-locator": "balanced",
    "queue-master-locator": "min-masters",
    "initial-cluster-size": 3,
    "target-group-size": 3,
    "ha-mode": "exactly",
    "ha-params": 2,
    "ha-sync-mode": "automatic",
    "ha-sync-batch-size": 1,
    "ha-promote-on-shutdown": "always",
    "ha-promote-on-failure": "always",
    "federation-upstream": "up",
    "federation-upstream-set": "all",
    "federation-upstream-pattern": ".*",
}

NO_NUMBER: tuple[Any, ...] = ("5", "", 1.5, True, None, [5], {"a": 5})
NEGATIVE = (*NO_NUMBER, -1, 2**63)
NO_TEXT: tuple[Any, ...] = (5, True, None, ["a"], {"a": "b"})
NO_NAME = (*NO_TEXT, "x" * 256, "é" * 128)

BAD: dict[str, tuple[Any, ...]] = {
    "max-length": NEGATIVE,
    "max-length-bytes": NEGATIVE,
    "message-ttl": NEGATIVE,
    "expires": (*NEGATIVE, 0),
    "overflow": (*NO_TEXT, "", "drop-tail", "Drop-Head"),
    "dead-letter-exchange": NO_NAME,
    "dead-letter-routing-key": NO_NAME,
    "delivery-limit": (*NO_NUMBER, -2),
    "consumer-timeout": NEGATIVE,
    "confirm-on": (*NO_TEXT, "", "read"),
    "max-age": (*NO_TEXT, "", "7", "7 D", "7d", "-7D", "1D2h", "0D"),
    "stream-max-segment-size-bytes": NEGATIVE,
    "stream-index": (5, True, None, "", "id", "header:", ["message_id", 5], {}, ["message_id", ""]),
    "history": (*NO_TEXT, "", "on", "Full"),
    "history-keys": (5, True, None, "", "id", "header:", ["message_id", 5], {}),
    "history-retention": (*NO_TEXT, "", "7", "7 D", "7d", "-7D", "1D2h", "0D"),
    "history-events": (1, 0, "true", None, []),
    "stream-tier": (1, 0, "true", None, []),
    "stream-local-max-bytes": NEGATIVE,
    "stream-local-max-age": (*NO_TEXT, "", "7", "7 D", "7d", "-7D", "1D2h", "0D"),
    "alternate-exchange": NO_NAME,
    "delayed-message": (1, 0, "true", None, []),
    "queue-mode": (*NO_TEXT, "fast"),
    "queue-version": (*NO_NUMBER, 0, 3),
    "max-in-memory-length": NEGATIVE,
    "max-in-memory-bytes": NEGATIVE,
    "dead-letter-strategy": (*NO_TEXT, "sometimes"),
    "stream-filter-size-bytes": (*NO_NUMBER, 15, 256),
    "queue-leader-locator": NO_TEXT,
    "queue-master-locator": NO_TEXT,
    "initial-cluster-size": (*NO_NUMBER, 0),
    "target-group-size": (*NO_NUMBER, 0),
    "ha-mode": NO_TEXT,
    # A number or a list of nodes with `ha-mode`, whose rules are gone with mirroring.
    "ha-params": (),
    "ha-sync-mode": NO_TEXT,
    "ha-sync-batch-size": (*NO_NUMBER, 0),
    "ha-promote-on-shutdown": NO_TEXT,
    "ha-promote-on-failure": NO_TEXT,
    "federation-upstream": NO_TEXT,
    "federation-upstream-set": NO_TEXT,
    "federation-upstream-pattern": NO_TEXT,
}
