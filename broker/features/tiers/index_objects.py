"""The objects of a vhost's index of streams: its files are put into the store, and ranges of them
are read for searches."""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from broker.features.tiers.carrier import Carrier, Pause
from broker.features.tiers.register import Register
from broker.schema.tier_work import READ_MOST, Answer
from broker.store.keys.blobs import BlobChanged, BlobError, BlobMissing

log = logging.getLogger("leveret.tiers")

LOG_EVERY_S = 10.0

Made = Callable[[str, str], object]
"""Gets an object's name and ETag; both are empty if it was not made."""

_ERRORS: dict[str, tuple[type[BlobError], str]] = {
    "missing": (BlobMissing, "its object is missing"),
    "wrong": (BlobChanged, "its object is not the one that was put there"),
}
_AWAY = BlobError, "the object store does not give it now"
"""Who may search a stream need not know where the store is: the log has that."""


def group_of_index(directory: str) -> str:
    """The group of objects of the index of a vhost, by the vhost's directory."""
    return f"index-{Path(directory).name}"


class Store:
    """What the objects of all indexes share. `may_write()`: the store is there and this
    appliance's; `due()`: when an object that is given up now is deleted."""

    def __init__(
        self,
        host: Any,
        carrier: Carrier,
        register: Register,
        may_write: Callable[[], bool],
        due: Callable[[], int],
    ) -> None:
        self.host = host
        self.carrier = carrier
        self.register = register
        self.may_write = may_write
        self.due = due
        self.pause = Pause(lambda: float(host.config.tier_retry_max))
        self.count = self.bytes = self.reads = 0
        """Of files that were put there, and of ranges that were read, since the start."""
        self._noted = -math.inf

    def on_loop(self, act: Callable[[], object]) -> None:
        """Has something done on the loop. From any thread."""
        self.host.loop.call_soon_threadsafe(act)

    def note(self, problem: str) -> None:
        """Logs why a range could not be read, at intervals."""
        now = time.monotonic()
        if now >= self._noted + LOG_EVERY_S:
            self._noted = now
            log.error("reading a file of an index fails: %s", problem)


class IndexObjects:
    """The objects of one index; see `broker.store.keys.blobs.Blobs`."""

    def __init__(self, store: Store, group: str) -> None:
        self._store = store
        self._group = group

    # -- on the loop -------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `put` may be tried now."""
        return self._store.may_write() and self._store.pause.is_over

    def put(self, path: str, length: int, number: int, done: Made) -> None:
        """Makes an object of a file of the index."""
        name = (
            f"{self._store.carrier.appliance}/{self._group}/"
            f"{number:010d}-{self._store.host.definitions.boot}-{secrets.token_hex(8)}"
        )
        self._store.register.intend(name, partial(self._put, name, path, length, done))

    def _put(self, name: str, path: str, length: int, done: Made, problem: str) -> None:
        """The name is in the register."""
        if problem:
            self._failed(name, done, problem)
            return
        made = partial(self._made, name, length, done)
        self._store.carrier.give("put_file", made, name=name, path=path, length=length)

    def _made(self, name: str, length: int, done: Made, answer: Answer) -> None:
        if answer.fault:
            self._failed(name, done, answer.problem)
            return
        self._store.pause.succeed()
        self._store.count += 1
        self._store.bytes += length
        done(name, answer.etag)

    def _failed(self, name: str, done: Made, problem: str) -> None:
        self._store.pause.fail(problem)
        self._store.register.condemn(name, self._store.due())
        done("", "")

    def end(self) -> None:
        """The index was deleted."""
        self._store.register.end(self._group, self._store.due())

    # -- from any thread ---------------------------------------------------------------------------

    def fetch(self, name: str, etag: str, offset: int, length: int) -> Future[bytes]:
        """See `Blobs`."""
        coming = _Coming(self._store, name, etag, offset, length)
        self._store.on_loop(coming.go_on)
        return coming.future

    def delete(self, name: str) -> None:
        """See `Blobs`."""
        register = self._store.register
        self._store.on_loop(lambda: register.condemn(name, self._store.due()))

    def keep(self, names: Collection[str]) -> None:
        """See `Blobs`."""
        register = self._store.register
        self._store.on_loop(lambda: register.keep(self._group, names, self._store.due()))


class _Coming:
    """A range of an object that is on its way, in answers of at most `READ_MOST` bytes."""

    def __init__(self, store: Store, name: str, etag: str, offset: int, length: int) -> None:
        self.future: Future[bytes] = Future()
        self._store = store
        self._name = name
        self._etag = etag
        self._offset = offset
        self._left = length
        self._parts: list[bytes] = []

    def go_on(self) -> None:
        """Asks for the next part. On the loop."""
        if self.future.cancelled():
            return
        self._store.reads += 1
        self._store.carrier.give(
            "read",
            self._came,
            name=self._name,
            etag=self._etag,
            offset=self._offset,
            length=min(self._left, READ_MOST),
        )

    def _came(self, answer: Answer) -> None:
        if not answer.fault:
            self._parts.append(answer.data)
            self._offset += len(answer.data)
            self._left -= len(answer.data)
            if self._left > 0:
                self.go_on()
                return
        if self.future.set_running_or_notify_cancel():
            if answer.fault:
                self._store.note(answer.problem)
                kind, text = _ERRORS.get(answer.fault, _AWAY)
                self.future.set_exception(kind(text))
            else:
                self.future.set_result(b"".join(self._parts))
