"""The message ids that a queue or an exchange remembers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from broker.features.dedup.discarding import DiscardingQueue
from broker.fields.codec import Binary, Reader, octets
from broker.kernel import clock
from broker.kernel.headers import header

SIZE_DEFAULT = 128
HEADER_DEFAULT = "x-deduplication-header"
FOREVER = 0
# Types of the values that may be an id: texts, bytes, integers.
SCALARS = frozenset((b"S", b"x", b"b", b"B", b"s", b"u", b"U", b"I", b"i", b"l", b"L"))
EXPIRES_MAX = 2**63 - 1


class Log(Protocol):
    """Where ids are kept over a restart."""

    def append(self, identity: bytes, expires: int, published: int) -> None: ...

    def forget(self, identity: bytes) -> None: ...


class Duplicates:
    """The last `size` ids, the oldest forgotten first; each also by its time (ms, None: never).

    An id is a text, bytes or an integer in the header `header_name`; it is remembered as a digest
    of 16 bytes, so that long ones cost no more. A message without one is no duplicate of anything.
    """

    def __init__(
        self,
        *,
        size: int = SIZE_DEFAULT,
        ttl_ms: int | None = None,
        header_name: str = HEADER_DEFAULT,
        durable: bool = False,
        log: Log | None = None,
    ) -> None:
        self.dropped = 0
        self.targets = (DiscardingQueue(durable),)
        self._header_name = header_name
        self._log = log
        self._ids: OrderedDict[bytes, int] = OrderedDict()
        self._size = size
        self._ttl_ms = ttl_ms

    def counters(self) -> dict[str, int]:
        """Duplicates dropped since the start, under LavinMQ's name."""
        return {"dedup": self.dropped}

    def facts(self) -> dict[str, int]:
        """What is shown of it: the same, ids remembered, and how many at most."""
        return {
            "dedup_count": self.dropped,
            "dedup_remembered": len(self._ids),
            "dedup_remembered_max": self._size,
        }

    def restore(
        self, logged: Iterable[tuple[bytes, int, int]], behind: Iterable[tuple[int, bytes]]
    ) -> None:
        """Takes the ids of the last run: (id, expires, published) as logged, and (published,
        properties) of messages that came to the disk without their ids' entries."""
        known = set()
        for identity, expires, _ in logged:
            known.add(identity)
            self._keep(identity, expires)
        for published, listed in behind:
            found = self.identity(listed)
            if found is not None and found not in known:
                self.remember(found, listed, published)

    def identity(self, listed: bytes) -> bytes | None:
        """The id among properties as received, or None."""
        raw = header(listed, self._header_name)
        if raw is None or raw[:1] not in SCALARS:
            return None
        value = Reader(raw).value(1)
        if isinstance(value, str):
            plain = b"t" + octets(value)
        elif isinstance(value, Binary):
            plain = b"t" + value
        elif isinstance(value, int):
            plain = b"i%d" % value
        else:
            return None
        return hashlib.blake2b(plain, digest_size=16).digest()

    def drops(self, identity: bytes) -> bool:
        """Whether a message of this id came before; it is counted then."""
        expires = self._ids.get(identity)
        if expires is None:
            return False
        if expires != FOREVER and expires <= clock.now():
            del self._ids[identity]
            return False
        self.dropped += 1
        return True

    def remember(self, identity: bytes, listed: bytes, published: int) -> None:
        """A message of this id, published then, was taken."""
        ttl = self._ttl_ms
        raw = header(listed, "x-cache-ttl")
        if raw is not None and raw[:1] in SCALARS:
            own = Reader(raw).value(1)
            if isinstance(own, int) and own >= 0:
                ttl = own
        expires = FOREVER if ttl is None else min(published + ttl, EXPIRES_MAX)
        self._keep(identity, expires)
        if self._log is not None and self._size:
            self._log.append(identity, expires, published)

    def _keep(self, identity: bytes, expires: int) -> None:
        self._ids.pop(identity, None)
        self._ids[identity] = expires
        while len(self._ids) > self._size:
            self._ids.popitem(last=False)

    def forget(self, listed: bytes) -> None:
        """The message was refused after all: its publisher will send it again."""
        identity = self.identity(listed)
        if identity is not None and self._ids.pop(identity, None) is not None and self._log:
            self._log.forget(identity)


def settings_of(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `Duplicates` takes, from x-arguments; None where deduplication is off."""
    if arguments.get("x-message-deduplication") is not True:
        return None
    return {
        "size": arguments.get("x-cache-size", SIZE_DEFAULT),
        "ttl_ms": arguments.get("x-cache-ttl"),
        "header_name": arguments.get("x-deduplication-header", HEADER_DEFAULT),
    }
