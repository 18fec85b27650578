"""What is remembered of one connection over HTTP: the credentials it was let in with."""

from __future__ import annotations

import hashlib
import hmac
import os

SEEN = "leveret.seen"
"""Key of a request's scope."""

_KEY = os.urandom(32)


class Seen:
    """The latest credentials that the broker took on this connection, as an HMAC.

    The broker answers them from memory while it checks wrong passwords for the same user from the
    same address, each in full. A wrong password makes the connection forget: so it does not help to
    guess, also where a proxy sends requests of several clients through one connection.
    """

    __slots__ = ("_mac",)

    def __init__(self) -> None:
        self._mac = b""

    def was_let_in(self, peer: str, value: str) -> bool:
        """Whether this Authorization header, from this peer, was the latest one that was right."""
        return bool(self._mac) and hmac.compare_digest(self._mac, _mac(peer, value))

    def let_in(self, peer: str, value: str) -> None:
        """It was right."""
        self._mac = _mac(peer, value)

    def forget(self) -> None:
        """One was wrong, or could not be asked about."""
        self._mac = b""


def _mac(peer: str, value: str) -> bytes:
    return hmac.digest(_KEY, f"{peer} {value}".encode("utf-8", "surrogatepass"), hashlib.sha256)
