"""Removes the bindings of deleted queues and exchanges, and auto-delete exchanges without bindings.

There may be any number of both, so they are removed in slices. A binding of which one end is
deleted is not shown, and no message is routed by it, though the name may be used again meanwhile. A
kill in the middle loses nothing: the journal has the deletion, and the next start does the rest of
it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from broker.routing.exchange import BoundExchange
from broker.vhosts.bindings import Bindings
from broker.vhosts.slices import Slices


class Unbinding:
    """That of one vhost. `delete(exchange)` deletes an exchange as the vhost does."""

    def __init__(
        self, bindings: Bindings, slices: Slices, delete: Callable[[BoundExchange], None]
    ) -> None:
        self._bindings = bindings
        self._slices = slices
        self._delete = delete
        self._lonely: deque[BoundExchange] = deque()
        self._deletes = False
        self._is_deleting = False
        self._under_way = 0
        """Deletions of which not every binding is removed."""

    @property
    def is_idle(self) -> bool:
        """Whether everything that a deletion takes with it is gone."""
        return not (self._under_way or self._lonely)

    def start(self, *, lacks_definitions: bool) -> None:
        """The loop runs: auto-delete exchanges whose last binding was removed, and which were not,
        go now, unless the bindings they have may be lost."""
        self._deletes = True
        if lacks_definitions:
            self._lonely.clear()
        elif self._lonely:
            self._is_deleting = True
            self._slices.begin(self._delete_lonely())

    def begin(self, kind: str, name: str, gone: BoundExchange | None = None) -> None:
        """A queue or an exchange was deleted; `gone` is the exchange."""
        for exchange in self._bindings.leave(kind, name):
            self.look_at(exchange)
        self._under_way += 1
        self._slices.begin(self._unbind(kind, name, gone))

    def _unbind(self, kind: str, name: str, gone: BoundExchange | None) -> Iterator[None]:
        try:
            if gone is not None:
                yield from self._bindings.drop_from(gone)
            for exchange in self._bindings.drop_to(kind, name):
                if exchange is not None:
                    self.look_at(exchange)
                yield
        finally:
            self._under_way -= 1

    def look_at(self, exchange: BoundExchange) -> None:
        """A binding of this exchange was removed."""
        if not exchange.auto_delete or exchange.bindings:
            return
        self._lonely.append(exchange)
        if self._deletes and not self._is_deleting:
            self._is_deleting = True
            self._slices.begin(self._delete_lonely())

    def _delete_lonely(self) -> Iterator[None]:
        """Deletes auto-delete exchanges whose last binding went, and those that this leaves
        without one: a chain of them may be of any length."""
        try:
            while self._lonely:
                exchange = self._lonely.popleft()
                if self._bindings.has_exchange(exchange) and not exchange.bindings:
                    self._delete(exchange)
                yield
        finally:
            self._is_deleting = False
            self._lonely.clear()
