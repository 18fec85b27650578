"""When connections, channels and consumers come and go, and what was made of their list since.

Lists of 10,000 channels are asked for again and again while few of them change: their order and
their names are kept by `broker.server.control.rosters` until the next change, and dropped with it,
so that nothing of a client outlives its connection.
"""

from __future__ import annotations


class Clients:
    """`version` rises with each connection, channel and consumer that comes or goes."""

    def __init__(self) -> None:
        self.version = 1
        self.kept: dict[object, tuple[object, list[object] | None]] = {}
        """What was made since the last change, by what was wanted."""

    def changed(self) -> None:
        """A connection, a channel or a consumer came or went."""
        self.version += 1
        if self.kept:
            self.kept.clear()
