"""Transfers: moving and copying messages between queues, also of different vhosts, as an operation
of the broker.

`broker.store.log.walk` goes over a queue and takes messages out of its middle, `moving` gives them
to others, `rules` decides which; `sources` and `target` are the two ends, `job` is one transfer
while it runs, and `feature` runs them all and keeps them over restarts (docs/transfers.md).
"""

from __future__ import annotations

from typing import Any


def build(host: Any) -> Any:
    """The transfers of a broker; control verbs find them as `host.transfers`."""
    from broker.features.transfer.feature import Transfers

    host.transfers = Transfers(host)
    return host.transfers
