"""How long usage is kept."""

from __future__ import annotations

import msgspec


class Keeping(msgspec.Struct, frozen=True):
    """In seconds: feed files whose lines are in the tables, hours, and everything."""

    lines: int
    hours: int
    everything: int
