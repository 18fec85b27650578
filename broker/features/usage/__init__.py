"""The usage feed: what every queue, exchange, user and connection moved, a file an hour.

`feed` takes differences of the broker's counters at intervals and appends them as JSON lines
(`docs/formats/usage.md`); the reports process adds them up with Spark. Nothing else in the broker
uses it.
"""

from __future__ import annotations

from typing import Any


def build(host: Any) -> Any:
    """The feed of a broker, under its data directory."""
    # Other processes import `records` without the broker's compiled modules.
    from broker.features.usage.feed import Feed
    from broker.store.files import disk

    return Feed(
        host,
        disk,
        str(host.config.data_dir / "usage"),
        host.config.usage_interval * 1000,
        run=lambda: int(host.definitions.boot),
    )
