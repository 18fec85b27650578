"""What the broker asks of the tiers process, and what that answers: frames of the socket
`run/tiers.sock`, a 32-bit big-endian length and a msgpack map."""

from __future__ import annotations

from typing import Literal

import msgspec

FRAME_MAX = 1 << 20
"""Bytes of segments go through files, and not through the socket."""

READ_MOST = FRAME_MAX // 2
"""Bytes of an object that are in one answer, at most."""

OWNER = "owner"
"""The name of the object that says whose the prefix is."""

BLOCK = 1 << 20
"""Bytes of a segment that are fetched, checked and kept together."""


class Tiered(msgspec.Struct, frozen=True, array_like=True):
    """An object that holds a segment. `checks`: the CRC-32C of each block of it, 4 bytes each,
    little-endian; `check`: of all of it."""

    name: str
    etag: str
    length: int
    check: int
    checks: bytes

    @property
    def blocks(self) -> int:
        return len(self.checks) // 4

    def check_of(self, block: int) -> int:
        return int.from_bytes(self.checks[4 * block : 4 * block + 4], "little")

    def fits(self) -> bool:
        """Whether there is a checksum for each block."""
        return len(self.checks) == 4 * -(-self.length // BLOCK)


Kind = Literal["open", "adopt", "put", "put_file", "get", "read", "delete"]

Fault = Literal["", "store", "owner", "local", "wrong", "missing", "away"]
"""Why a task failed: the store did not do it; its prefix belongs to another appliance; the local
file; the object is not what it was; there is no such object; the process is away."""


class Task(msgspec.Struct, omit_defaults=True):
    """One piece of work.

    `open` finds out whose the prefix is, and takes it where it is new (`known`: this appliance has
    used it, so that it is not new). `adopt` takes it in any case. `put` makes the object `name` of
    the file `path`, of which `length` bytes are a segment, and reads it back; `put_file` does that
    with any file. `get` writes a part of an object to the same place in the file `path`; `read`
    answers with one of at most `READ_MOST` bytes. `delete` removes an object.
    """

    id: int
    kind: Kind
    appliance: str
    name: str = ""
    path: str = ""
    etag: str = ""
    offset: int = 0
    length: int = 0
    check: int = 0
    incarnation: int = 0
    segment: int = 0
    known: bool = False


class Answer(msgspec.Struct, omit_defaults=True):
    """What came of a task. `problem` is a sentence for a person; `requests`, `sent` and `received`
    are what it cost."""

    id: int
    fault: Fault = ""
    problem: str = ""
    owner: str = ""
    etag: str = ""
    check: int = 0
    checks: bytes = b""
    data: bytes = b""
    requests: int = 0
    sent: int = 0
    received: int = 0
