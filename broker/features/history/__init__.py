"""History: what is routed in a vhost is also appended to its stream `amq.history`, where a policy
says so.

`recording` writes a record as part of the publish, `vhost_history` knows what is recorded in one
vhost and keeps its stream, and `feature` follows the policies (docs/history.md).
"""

from __future__ import annotations

from typing import Any


def build(host: Any) -> Any:
    """The history of all vhosts of a broker."""
    from broker.features.history.feature import Histories

    host.histories = Histories(host)
    return host.histories
