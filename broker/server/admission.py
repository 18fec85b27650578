"""How many sockets of clients the broker holds: few enough that the store can still open files.

Descriptors are numbered from the lowest free one, so the number of a new socket says how near the
limit is. The store's share and a reserve stay free; who comes after that is hung up on at once, and
the log says so now and then. Without it `accept` would fail over and over, and so would the disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.serving.tls_handshakes import Handshakes

if TYPE_CHECKING:
    from broker.settings.config import Config

log = logging.getLogger("leveret.connection")

RESERVE = 128
"""Descriptors kept for control socket, log, scrapers and what else the process opens."""
SAID_EVERY_S = 10.0


class Admission:
    """Counts sockets, and TLS handshakes on them. `descriptors` is the process's limit, `store`
    what the store may hold; `config` tells the settings in force."""

    def __init__(self, descriptors: int, store: int, config: Callable[[], Config]) -> None:
        self.handshakes = Handshakes(config)
        reserve = min(RESERVE, descriptors // 4)
        self._descriptors = descriptors - reserve
        self.room = max(1, descriptors - store - reserve)
        """Sockets there is room for."""
        self.limit = self.room
        self.sockets = 0
        self.refused = 0
        self._said_at = 0.0
        self._said = 0

    def configure(self, connections_max: int) -> None:
        """Sets the limit; 0 is as many as there is room for."""
        self.limit = min(self.room, connections_max) if connections_max else self.room

    def take(self, descriptor: int) -> bool:
        """Whether a new socket may stay; if so it is given back with `give`."""
        if self.sockets < self.limit and descriptor < self._descriptors:
            self.sockets += 1
            return True
        self.refused += 1
        now = time.monotonic()
        if now - self._said_at >= SAID_EVERY_S:
            log.warning(
                "%d connections refused: %d are open, and there is room for %d "
                "(connections_max, or the limit of open files)",
                self.refused - self._said,
                self.sockets,
                self.limit,
            )
            self._said_at, self._said = now, self.refused
        return False

    def give(self) -> None:
        """A socket is closed."""
        self.sockets -= 1
