"""Times for which the feed says that counts are missing."""

from __future__ import annotations

import msgspec


class Gap(msgspec.Struct, frozen=True, order=True):
    """From `since` to `until` (UTC milliseconds) counts are missing, for a reason that the feed
    names: `unclean` (the broker was killed) or `dropped` (more lines than fit into memory).
    """

    since: int
    until: int
    reason: str
