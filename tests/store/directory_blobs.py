"""The objects of an index as files of a directory, for tests."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path

from broker.store.files import disk
from broker.store.keys.blobs import BlobChanged, BlobMissing


class DirectoryBlobs:
    """See `Blobs`. Each call is carried out at once."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def put(self, number: int, data: bytes) -> tuple[str, str]:
        """Makes an object of a file; returns its name and ETag."""
        name = f"{number:010d}-{secrets.token_hex(8)}"
        self._directory.mkdir(exist_ok=True)
        disk.write_atomic(str(self._directory / name), data)
        return name, self._etag(name)

    def fetch(self, name: str, etag: str, offset: int, length: int) -> Future[bytes]:
        coming: Future[bytes] = Future()
        try:
            if self._etag(name) != etag:
                raise BlobChanged(f"object '{name}' is not the one that was put there")
            coming.set_result(disk.read_part(str(self._directory / name), offset, length))
        except FileNotFoundError:
            coming.set_exception(BlobMissing(f"object '{name}' is missing"))
        except BlobChanged as error:
            coming.set_exception(error)
        return coming

    def delete(self, name: str) -> None:
        disk.unlink(str(self._directory / name))

    def keep(self, names: Collection[str]) -> None:
        for name in disk.listdir(str(self._directory)):
            if name not in names:
                self.delete(name)

    def _etag(self, name: str) -> str:
        state = (self._directory / name).stat()
        return f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}"
