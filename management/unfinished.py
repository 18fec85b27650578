"""Memory of requests that are not whole yet, bounded for all clients together and for each."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings


class Room:
    """A limit of bytes at a time: `most()` for all holders together, `most_of_one()` for each.

    A holder is the name of a user, or the address of a client that has not signed in.
    """

    def __init__(self, most: Callable[[], int], most_of_one: Callable[[], int]) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._held: dict[str, int] = {}
        self.taken = 0

    def take(self, holder: str, size: int) -> bool:
        """Whether there was room for `size` bytes more."""
        held = self._held.get(holder, 0) + size
        if held > self._most_of_one() or self.taken + size > self._most():
            return False
        self._held[holder] = held
        self.taken += size
        return True

    def give_back(self, holder: str, size: int) -> None:
        self.taken -= size
        left = self._held[holder] - size
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]


def _all() -> int:
    most: int = settings.APPLIANCE.http_unfinished_max
    return most


USERS = Room(lambda: _all() * 3 // 4, lambda: _all() // 4)
"""Bodies of users that are signed in; each may hold a third of it."""
STRANGERS = Room(lambda: _all() // 4, lambda: _all() // 16)
"""Heads, forms before the sign-in, and what comes before credentials are looked at; each address
may hold a quarter of it."""
