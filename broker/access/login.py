"""What stands between a password and a user: throttle, remembered pairs, tickets, ended sessions.

All of it is memory and monotonic time; nothing here hashes or waits.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.access.records import User

WINDOW_S = 60.0
REMEMBERED_S = 600.0
TICKET_S = 30.0
TICKET_PREFIX = "ticket:"

_BACK_OFF_FIRST_S = 5.0
_FORGIVEN_S = 900.0
_KEYS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Refused:
    """A login that is refused. `status` and `error` as the HTTP API answers them.

    `reason` may be shown to whoever tries; it never says whether the user exists.
    """

    reason: str = "Not_Authorized"
    status: int = 401
    error: str = "not_authorized"

    @classmethod
    def too_often(cls, wait_s: float) -> Refused:
        """For whoever has to wait for the next try."""
        reason = (
            "Too many wrong passwords for this user from this address; "
            f"try again in {math.ceil(wait_s)} seconds"
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
    outcome: Any = None
    """Room for the server: what the logins that share the job wait for."""


class Throttle:
    """Counts wrong passwords per user and address: so many a minute are let through.

    Then the pair has to wait, and twice as long after each further wrong one, up to the longest.
    """

    def __init__(self, monotonic: Callable[[], float], failures_max: int, longest_s: float) -> None:
        self._monotonic = monotonic
        self._failures_max = failures_max
        self._longest_s = longest_s
        self._tries: OrderedDict[tuple[str, str], _Tries] = OrderedDict()

    def configure(self, failures_max: int, longest_s: float) -> None:
        """Sets the tries a minute and the longest wait."""
        self._failures_max = failures_max
        self._longest_s = longest_s

    def wait_s(self, user: str, peer: str) -> float:
        """Seconds until this user may be tried from there again; 0 if at once."""
        tries = self._tries.get((user, peer))
        if tries is None:
            return 0.0
        now = self._monotonic()
        while tries.wrong and tries.wrong[0] <= now - WINDOW_S:
            tries.wrong.popleft()
        wait_s = max(0.0, tries.blocked_until - now)
        if len(tries.wrong) >= self._failures_max:
            wait_s = max(wait_s, tries.wrong[0] + WINDOW_S - now)
        return wait_s

    def begin(self, user: str, peer: str) -> bool:
        """Takes one of the tries, which `end` gives back; False if all are taken just now."""
        tries = self._tries.setdefault((user, peer), _Tries())
        self._tries.move_to_end((user, peer))
        while len(self._tries) > _KEYS_KEPT:
            self._tries.popitem(last=False)
        if len(tries.wrong) + tries.open >= self._failures_max:
            return False
        tries.open += 1
        return True

    def end(self, user: str, peer: str, ok: bool) -> None:
        """Tells how a try that `begin` let through ended."""
        tries = self._tries.get((user, peer))
        if tries is None:
            return
        tries.open = max(0, tries.open - 1)
        now = self._monotonic()
        if ok:
            if not tries.open and not tries.wrong and now >= tries.blocked_until:
                del self._tries[(user, peer)]
            return
        tries.wrong.append(now)
        if len(tries.wrong) >= self._failures_max:
            if now - tries.blocked_until > _FORGIVEN_S:
                tries.blocks = 0
            wait_s = min(_BACK_OFF_FIRST_S * 2 ** min(tries.blocks, 16), self._longest_s)
            tries.blocked_until = now + wait_s
            tries.blocks += 1


class _Tries:
    __slots__ = ("blocked_until", "blocks", "open", "wrong")

    def __init__(self) -> None:
        self.wrong: deque[float] = deque()
        self.open = 0
        self.blocks = 0
        self.blocked_until = float("-inf")


class VerifiedPairs:
    """Pairs of user and password that were verified, as HMACs under a key of this boot."""

    def __init__(self, monotonic: Callable[[], float], key: bytes) -> None:
        self._monotonic = monotonic
        self._key = key
        self._pairs: OrderedDict[str, tuple[bytes, int, float]] = OrderedDict()

    def mac(self, user: str, password: str) -> bytes:
        pair = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, pair, "sha256")

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


class Tickets:
    """Passwords for one login, good for half a minute. Only their digests are kept."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._tickets: OrderedDict[bytes, tuple[str, int, float]] = OrderedDict()

    def issue(self, user: User) -> str:
        """A new ticket; the user gives it as password within TICKET_S seconds."""
        self._drop_expired()
        ticket = TICKET_PREFIX + secrets.token_urlsafe(32)
        until = self._monotonic() + TICKET_S
        self._tickets[_digest(ticket)] = (user.name, user.epoch, until)
        while len(self._tickets) > _KEYS_KEPT:
            self._tickets.popitem(last=False)
        return ticket

    def redeem(self, user: User, password: str) -> bool:
        """Whether the password is a ticket of this user. A ticket that was shown is used up."""
        if not password.startswith(TICKET_PREFIX):
            return False
        self._drop_expired()
        found = self._tickets.pop(_digest(password), None)
        return found is not None and found[:2] == (user.name, user.epoch)

    def _drop_expired(self) -> None:
        now = self._monotonic()
        while self._tickets and next(iter(self._tickets.values()))[2] <= now:
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
