"""The add-ons. Each is a folder and one line here; take both away and the rest goes on without
it."""

from __future__ import annotations

from typing import Any

from broker.features import usage

BUILDERS = (usage.build,)


def build(host: Any) -> list[Any]:
    """The features of one broker: objects with `start`, `tick`, `queue_deleted`,
    `connection_closed` and `stop`, each given `now_ms`."""
    return [builder(host) for builder in BUILDERS]
