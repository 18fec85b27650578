"""How many wrong passwords are let through: guessing stays slow, and no user can lock out another.

Wrong passwords are counted for each pair of user and address, and for each address alone, where the
limit is far higher. A pair from which the user was let in lately is trusted: it is never made to
wait, so that neither a shared address nor a client with an old password keeps the rightful one
away. What a trusted pair tries is still bounded: a limited number is verified at a time, and
beyond the rate of an address each one in full, since comparing it with a remembered one would be a
fast guess.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from broker.process.logs import one_line

log = logging.getLogger("leveret.login")

WINDOW_S = 60.0

_BACK_OFF_FIRST_S = 5.0
_FORGIVEN_S = 900.0
_KEYS_KEPT = 10_000
_TRUSTED_KEPT = 100_000
_TRUSTED_OF_USER = 1_000
"""Addresses at which one user is trusted: few enough to forget them in one step."""
_SHOWN = 80
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class Limits:
    """`failures_max` wrong passwords a minute for a user from an address, `address_failures_max`
    from an address for all users; waits of at most `longest_s`; a pair is trusted for
    `trusted_s` after a login."""

    failures_max: int = 10
    address_failures_max: int = 300
    longest_s: float = 60.0
    trusted_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A refusal, with the seconds that it holds; `is_address`: of the whole address, not of one
    user."""

    seconds: float
    is_address: bool = False


class Throttle:
    """One for all protocols. `monotonic` is in seconds."""

    def __init__(self, monotonic: Callable[[], float], limits: Limits) -> None:
        self._monotonic = monotonic
        self._limits = limits
        self._pairs: OrderedDict[tuple[str, str], _Tries] = OrderedDict()
        self._addresses: OrderedDict[str, _Tries] = OrderedDict()
        self._trusted: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()
        """Until when by user and address; who was let in last comes last."""
        self._trusted_pairs = 0

    def configure(self, limits: Limits) -> None:
        """Sets the limits; what was counted stays."""
        self._limits = limits

    def wait(self, user: str, address: str) -> Wait | None:
        """How long this user may not be tried from there; None if at once."""
        if self.is_trusted(user, address):
            return None
        now = self._monotonic()
        limits = self._limits
        seconds = _wait_s(self._pairs.get((user, address)), limits.failures_max, now)
        of_all = _wait_s(self._addresses.get(address), limits.address_failures_max, now)
        if of_all > seconds:
            return Wait(of_all, is_address=True)
        return Wait(seconds) if seconds else None

    def begin(self, user: str, address: str, *, again: bool = False) -> bool:
        """Takes one of the tries, which `end` or `give_back` gives back; False if all are taken
        just now. One is always left for who was let in on the same connection (`again`)."""
        limits = self._limits
        is_trusted = self.is_trusted(user, address)
        of_all = self._addresses.get(address)
        if not is_trusted and of_all is not None and of_all.taken >= limits.address_failures_max:
            return False
        pair = self._pairs.get((user, address))
        if pair is not None:
            taken = pair.open if is_trusted else pair.taken
            if taken >= limits.failures_max and not (again and is_trusted):
                return False
        _of(self._pairs, (user, address)).open += 1
        _of(self._addresses, address).open += 1
        return True

    def give_back(self, user: str, address: str) -> None:
        """A try that `begin` let through was not looked at."""
        for tries in (self._pairs.get((user, address)), self._addresses.get(address)):
            if tries is not None:
                tries.open = max(0, tries.open - 1)

    def end(self, user: str, address: str, ok: bool) -> None:
        """Tells how a try that `begin` let through ended."""
        self.give_back(user, address)
        if ok:
            self.trust(user, address)
            return
        now = self._monotonic()
        limits = self._limits
        pair = _of(self._pairs, (user, address))
        pair.add(now, max(limits.failures_max, limits.address_failures_max))
        if self.is_trusted(user, address):
            # Its own affair: others at the address shall not wait for it.
            return
        of_all = _of(self._addresses, address)
        of_all.add(now, limits.address_failures_max)
        if len(of_all.wrong) == limits.address_failures_max:
            log.warning(
                "%d wrong passwords from %s within a minute: more are refused for now, but for"
                " users who were let in from there lately",
                len(of_all.wrong),
                one_line(address),
            )
        if len(pair.wrong) >= limits.failures_max:
            wait_s = pair.back_off(now, limits.longest_s)
            log.warning(
                "%d wrong passwords for user '%s' from %s: more are refused for %g seconds",
                len(pair.wrong),
                one_line(user[:_SHOWN]),
                one_line(address),
                wait_s,
            )

    def trust(self, user: str, address: str) -> None:
        """The user was let in from there."""
        addresses = self._trusted.setdefault(user, OrderedDict())
        self._trusted.move_to_end(user)
        self._trusted_pairs += address not in addresses
        addresses[address] = self._monotonic() + self._limits.trusted_s
        addresses.move_to_end(address)
        if len(addresses) > _TRUSTED_OF_USER:
            addresses.popitem(last=False)
            self._trusted_pairs -= 1
        while self._trusted_pairs > _TRUSTED_KEPT:
            self._trusted_pairs -= len(self._trusted.popitem(last=False)[1])

    def forget(self, user: str) -> None:
        """The user is deleted: another one of this name is trusted nowhere."""
        self._trusted_pairs -= len(self._trusted.pop(user, ()))

    def is_flooded(self, user: str, address: str) -> bool:
        """Whether a trusted pair sends wrong passwords at such a rate that each try has to be
        verified in full."""
        tries = self._pairs.get((user, address))
        if tries is None:
            return False
        tries.drop_old(self._monotonic())
        return len(tries.wrong) >= self._limits.address_failures_max

    def is_trusted(self, user: str, address: str) -> bool:
        addresses = self._trusted.get(user)
        until = addresses.get(address) if addresses is not None else None
        return until is not None and self._monotonic() < until


class _Tries:
    __slots__ = ("blocked_until", "blocks", "open", "wrong")

    def __init__(self) -> None:
        self.wrong: deque[float] = deque()
        self.open = 0
        self.blocks = 0
        self.blocked_until = float("-inf")

    @property
    def taken(self) -> int:
        """Wrong passwords, and those that are being looked at."""
        return self.open + len(self.wrong)

    def drop_old(self, now: float) -> None:
        while self.wrong and self.wrong[0] <= now - WINDOW_S:
            self.wrong.popleft()

    def add(self, now: float, most: int) -> None:
        """A wrong password; of more than `most` in a minute the oldest is forgotten."""
        self.drop_old(now)
        self.wrong.append(now)
        while len(self.wrong) > most:
            self.wrong.popleft()

    def back_off(self, now: float, longest_s: float) -> float:
        """Begins a wait, twice as long as the last one. Returns its seconds."""
        if now - self.blocked_until > _FORGIVEN_S:
            self.blocks = 0
        wait_s: float = min(_BACK_OFF_FIRST_S * 2 ** min(self.blocks, 16), longest_s)
        self.blocked_until = now + wait_s
        self.blocks += 1
        return wait_s


def _wait_s(tries: _Tries | None, most: int, now: float) -> float:
    if tries is None:
        return 0.0
    tries.drop_old(now)
    wait_s = max(0.0, tries.blocked_until - now)
    if len(tries.wrong) >= most:
        wait_s = max(wait_s, tries.wrong[len(tries.wrong) - most] + WINDOW_S - now)
    return wait_s


def _of(kept: OrderedDict[_Key, _Tries], key: _Key) -> _Tries:
    """The tries of a key; of too many keys the one used longest ago is forgotten."""
    tries = kept.setdefault(key, _Tries())
    kept.move_to_end(key)
    while len(kept) > _KEYS_KEPT:
        kept.popitem(last=False)
    return tries
