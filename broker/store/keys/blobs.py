"""Where uploaded files lie: objects that are made once, read by ranges and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from broker.store.files import disk


class BlobError(Exception):
    """The store of objects did not do what was asked; the text says why."""


class BlobMissing(BlobError):
    """There is no such object."""


class BlobChanged(BlobError):
    """There is another object of this name than the one that was put."""


class Blobs(Protocol):
    """Names are paths without `..`; an ETag stands for the content that `put` wrote. All may be
    called from any thread, wait for the store, and raise BlobError."""

    def put(self, name: str, data: bytes) -> str:
        """Makes an object and returns its ETag; one of this name must not exist."""

    def get(self, name: str, etag: str, offset: int, length: int) -> bytes:
        """A range of an object. Raises BlobMissing, BlobChanged."""

    def delete(self, name: str) -> None:
        """Removes an object; one that is not there is fine."""


class DirectoryBlobs:
    """Objects as files of a directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def put(self, name: str, data: bytes) -> str:
        path = self._path(name)
        if disk.exists(path):
            raise BlobError(f"object '{name}' exists already")
        try:
            disk.makedirs(str(Path(path).parent))
            disk.write_atomic(path, data)
            return _etag(path)
        except OSError as error:
            raise BlobError(f"object '{name}' cannot be written: {error.strerror}") from None

    def get(self, name: str, etag: str, offset: int, length: int) -> bytes:
        path = self._path(name)
        try:
            if _etag(path) != etag:
                raise BlobChanged(f"object '{name}' is not the one that was put there")
            return disk.read_part(path, offset, length)
        except FileNotFoundError:
            raise BlobMissing(f"object '{name}' is missing") from None
        except OSError as error:
            raise BlobError(f"object '{name}' cannot be read: {error.strerror}") from None

    def delete(self, name: str) -> None:
        try:
            disk.unlink(self._path(name))
            # What a crash leaves of a `put`.
            disk.unlink(f"{self._path(name)}.tmp")
        except OSError as error:
            raise BlobError(f"object '{name}' cannot be deleted: {error.strerror}") from None

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _etag(path: str) -> str:
    state = Path(path).stat()
    return f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}"
