"""Message deduplication: a queue or an exchange drops a message whose id it has seen.

`duplicates` remembers ids, `id_log` keeps them over a restart (`docs/formats/deduplication.md`),
`sink` is where an exchange's duplicates go.
"""

from __future__ import annotations

from typing import Any

from broker.features.dedup.feature import Deduplication


def build(host: Any) -> Deduplication:
    """Deduplication in a broker."""
    return Deduplication(host.persister)
