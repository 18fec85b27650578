"""Where a compacted file of an index lies, and how its parts are read from there: all here, or its
head, slots and filter here and its arrays in an object.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection
from concurrent.futures import Future

from broker.kernel.checksum import crc32c
from broker.store.files import disk
from broker.store.keys.blobs import Blobs
from broker.store.keys.candidates import Candidates
from broker.store.keys.compacted import HEAD_BYTES, PAGE_BYTES, Compacted, head_bytes
from broker.store.keys.rows import Damaged

_TRAILER = struct.Struct("<II")
"""Length of what stands before it behind the filter, and its CRC-32C."""


class LocalFile:
    """A compacted file on this disk. Raises OSError and Damaged."""

    state = "compacted"
    is_remote = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.head = _head_of(path)

    def place_of(self, hash: int) -> tuple[int, int] | None:
        """(address, length) of a key's array; None: the file does not have the key. Reads a page of
        the filter and one of the slots."""
        page = disk.read_part(self.path, self.head.filter_place(hash), PAGE_BYTES)
        if not self.head.may_hold(hash, page):
            return None
        page = disk.read_part(self.path, self.head.slot_place(hash), PAGE_BYTES)
        address, length = self.head.array_of(hash, page)
        return (address, length) if length else None

    def array(self, place: tuple[int, int]) -> bytes:
        """The array at a place."""
        return disk.read_part(self.path, *place)

    def find(
        self,
        hash: int,
        array: bytes,
        first_ms: int,
        last_ms: int,
        streams: Collection[int] | None,
    ) -> Candidates:
        """What an array says about a key."""
        return self.head.find(hash, array, first_ms, last_ms, streams)


class RemoteFile(LocalFile):
    """An uploaded file: the file here is its stub."""

    state = "uploaded"
    is_remote = True

    def __init__(self, path: str, blobs: Blobs) -> None:
        super().__init__(path)
        self._blobs = blobs
        self.object, self.etag = object_of(path)

    def fetch(self, place: tuple[int, int]) -> Future[bytes]:
        """The array at a place, by a request for this range; the future raises BlobError."""
        return self._blobs.fetch(self.object, self.etag, *place)


def stub(file: LocalFile, object: str, etag: str) -> list[bytes]:
    """What stays here of an uploaded file, as pieces: everything before its arrays, and where those
    are. Raises OSError."""
    head = disk.read_part(file.path, 0, file.head.arrays_at)
    told = json.dumps({"object": object, "etag": etag}).encode()
    return [head, told, _TRAILER.pack(len(told), crc32c(told))]


def _head_of(path: str) -> Compacted:
    size = head_bytes(disk.read_part(path, 0, HEAD_BYTES))
    if not size:
        raise Damaged(f"{path} does not begin as a file of an index of this version")
    return Compacted(disk.read_part(path, 0, size), path)


def object_of(path: str) -> tuple[str, str]:
    """Name and ETag of the object that a stub stands for. Raises Damaged, OSError."""
    at = _head_of(path).arrays_at
    content = disk.read_part(path, at, disk.size(path))
    if len(content) >= _TRAILER.size:
        length, check = _TRAILER.unpack(content[-_TRAILER.size :])
        told = content[: -_TRAILER.size]
        if len(told) == length and crc32c(told) == check:
            row = json.loads(told)
            return row["object"], row["etag"]
    raise Damaged(f"{path}: the name of its object fails the checksum")
