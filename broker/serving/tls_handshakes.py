"""TLS handshakes that are not over, bounded for all together and for each address: for the broker's
listeners and for the web process, each by itself.

A handshake takes memory and time of the loop, and its sender pays a few bytes for it. One more than
an address may have ends the oldest of that address; one more than all together ends the oldest of
the address that has most. So a new client gets in beside those that wait for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.serving.addresses import address_of

if TYPE_CHECKING:
    from broker.settings.config import Config

log = logging.getLogger("leveret.connection")


class Handshake:
    """One that has begun. `abort` ends its connection."""

    __slots__ = ("abort", "address")

    def __init__(self, address: str, abort: Callable[[], None]) -> None:
        self.address = address
        self.abort = abort


class Handshakes:
    """Those of a process. `config` tells the settings in force."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._of: dict[str, dict[Handshake, None]] = {}
        self.count = 0
        self.aborted = 0
        """Handshakes that were ended to make room, since the start."""

    def begin(self, peer: str, abort: Callable[[], None]) -> Handshake:
        """Counts the handshake of a peer, an IP address without port, until `end`."""
        config = self._config()
        address = address_of(peer)
        same = self._of.get(address, {})
        if len(same) >= config.tls_handshakes_address_max:
            self._abort(same, "tls_handshakes_address_max")
        elif self.count >= config.tls_handshakes_max:
            self._abort(max(self._of.values(), key=len), "tls_handshakes_max")
        handshake = Handshake(address, abort)
        self._of.setdefault(address, {})[handshake] = None
        self.count += 1
        return handshake

    def end(self, handshake: Handshake) -> None:
        """It is over; harmless if it was ended before."""
        of_address = self._of.get(handshake.address)
        if of_address is None or handshake not in of_address:
            return
        del of_address[handshake]
        self.count -= 1
        if not of_address:
            del self._of[handshake.address]

    def _abort(self, candidates: dict[Handshake, None], setting: str) -> None:
        oldest = next(iter(candidates))
        self.end(oldest)
        self.aborted += 1
        log.info("a TLS handshake of %s made room for a newer one (%s)", oldest.address, setting)
        oldest.abort()
