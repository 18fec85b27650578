"""Where arrays of uploaded files lie: objects that are made once, read by ranges and deleted."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Protocol


class BlobError(Exception):
    """The store of objects did not do what was asked; the text says why."""


class BlobMissing(BlobError):
    """There is no such object."""


class BlobChanged(BlobError):
    """There is another object of this name than the one that was put."""


class Blobs(Protocol):
    """The objects of one index. An ETag stands for the content that was put. All may be called from
    any thread, and none waits for the store."""

    def fetch(self, name: str, etag: str, offset: int, length: int) -> Future[bytes]:
        """A range of an object; the future raises BlobError, BlobMissing or BlobChanged."""

    def delete(self, name: str) -> None:
        """An object is of no use any more. One that is not there is fine."""

    def keep(self, names: Collection[str]) -> None:
        """At a start: of all objects of the index, only these are of use."""
