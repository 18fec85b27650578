"""What stands between a password and a user: remembered pairs, tickets, ended sessions; how often a
password may be tried is `broker.access.throttle`.

All of it is memory and monotonic time; nothing here hashes or waits.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.access.records import User
from broker.access.throttle import Wait

REMEMBERED_S = 600.0
TICKET_S = 30.0
TICKET_PREFIX = "ticket:"
TICKETS_OF_ONE_USER = 100
"""With more of a user, the oldest of the same user is removed, never one of another user."""

_KEYS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Refused:
    """A login that is refused. `status` and `error` as the HTTP API answers them.

    `reason` may be shown to the client; it never says whether the user exists.
    """

    reason: str = "Not_Authorized"
    status: int = 401
    error: str = "not_authorized"

    @classmethod
    def too_often(cls, wait: Wait) -> Refused:
        """For a login that has to wait for the next try."""
        whose = "" if wait.is_address else " for this user"
        reason = (
            f"Too many wrong passwords{whose} from this address; "
            f"try again in {math.ceil(wait.seconds)} seconds"
        )
        return cls(reason, 429, "too_many_attempts")


@dataclass(slots=True, eq=False)
class Job:
    """A password to be verified in a thread. Logins that try the same pair at once share a job."""

    user: str
    password: str = field(repr=False)
    peer: str
    password_hash: str | None = field(repr=False)
    hashing_algorithm: str
    epoch: int
    mac: bytes = field(repr=False)
    rehash: bool = False
    """Whether a hash of another form than argon2id is to be replaced, if the password fits."""
    upgraded_hash: str | None = field(default=None, repr=False)
    is_trusted: bool = False
    """Whether this user was let in from there lately."""
    outcome: Any = None
    """Room for the server: what the logins that share the job wait for."""
    askers: int = 0
    """Room for the server: how many logins wait for the outcome."""


class VerifiedPairs:
    """Pairs of user and password that were verified, as keyed hashes (BLAKE2b, RFC 7693) under a
    key of this boot."""

    def __init__(self, monotonic: Callable[[], float], key: bytes) -> None:
        self._monotonic = monotonic
        self._key = key
        self._pairs: OrderedDict[str, tuple[bytes, int, float]] = OrderedDict()

    def mac(self, user: str, password: str) -> bytes:
        pair = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        # An HMAC of OpenSSL takes three times as long, most of it to look up its algorithm.
        return hashlib.blake2b(pair, key=self._key, digest_size=32).digest()

    def remember(self, user: User, mac: bytes) -> None:
        self._pairs[user.name] = (mac, user.epoch, self._monotonic() + REMEMBERED_S)
        self._pairs.move_to_end(user.name)
        while len(self._pairs) > _KEYS_KEPT:
            self._pairs.popitem(last=False)

    def holds(self, user: User, mac: bytes) -> bool:
        known = self._pairs.get(user.name)
        if known is None:
            return False
        known_mac, epoch, until = known
        if epoch != user.epoch or self._monotonic() >= until:
            del self._pairs[user.name]
            return False
        return hmac.compare_digest(known_mac, mac)

    def forget(self, user: str) -> None:
        self._pairs.pop(user, None)


@dataclass(frozen=True, slots=True)
class _Ticket:
    user: str
    epoch: int
    session_id: str
    until: float


class Tickets:
    """Passwords for one login, good for half a minute. Only their digests are kept.

    `has_ended` tells whether the session of an id is over.
    """

    def __init__(
        self, monotonic: Callable[[], float], has_ended: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._monotonic = monotonic
        self._has_ended = has_ended
        self._tickets: OrderedDict[bytes, _Ticket] = OrderedDict()

    def issue(self, user: User, session_id: str = "") -> str:
        """A new ticket; the user gives it as password within TICKET_S seconds, and before the
        session ends in which it was made, if it was made in one."""
        self._drop_expired()
        own = [key for key, each in self._tickets.items() if each.user == user.name]
        for key in own[: len(own) - TICKETS_OF_ONE_USER + 1]:
            del self._tickets[key]
        ticket = TICKET_PREFIX + secrets.token_urlsafe(32)
        until = self._monotonic() + TICKET_S
        self._tickets[_digest(ticket)] = _Ticket(user.name, user.epoch, session_id, until)
        while len(self._tickets) > _KEYS_KEPT:
            self._tickets.popitem(last=False)
        return ticket

    def redeem(self, user: User, password: str) -> bool:
        """Whether the password is a ticket of this user, of a session that has not ended. A ticket
        that was shown is used up."""
        if not password.startswith(TICKET_PREFIX):
            return False
        self._drop_expired()
        found = self._tickets.pop(_digest(password), None)
        return (
            found is not None
            and (found.user, found.epoch) == (user.name, user.epoch)
            and not self._has_ended(found.session_id)
        )

    def _drop_expired(self) -> None:
        now = self._monotonic()
        while self._tickets and next(iter(self._tickets.values())).until <= now:
            self._tickets.popitem(last=False)


class EndedSessions:
    """Ids of sessions that were ended, until their cookies expire (ms since 1970)."""

    def __init__(self, clock_ms: Callable[[], int], ended: dict[str, int]) -> None:
        self._clock_ms = clock_ms
        self._ended = {key: at for key, at in ended.items() if at > clock_ms()}

    def end(self, session_id: str, expires_at: int) -> None:
        now = self._clock_ms()
        self._ended = {key: at for key, at in self._ended.items() if at > now}
        self._ended[session_id] = expires_at

    def __contains__(self, session_id: str) -> bool:
        return self._ended.get(session_id, 0) > self._clock_ms()

    def snapshot(self) -> dict[str, int]:
        return dict(self._ended)


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogatepass")).digest()
