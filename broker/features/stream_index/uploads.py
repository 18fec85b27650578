"""Index files go into the object store: the loop has an object made of a compacted file, then the
thread puts a stub in the file's place."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from broker.store.keys.series import Series


class Upload(NamedTuple):
    """An object that was made of a compacted file."""

    number: int
    object: str
    etag: str


class Uploads:
    """Of one series. `objects` are those of its index (`features/tiers/index_objects.py`), None:
    there is no object store."""

    def __init__(self, series: Series, objects: Any) -> None:
        self._series = series
        self._objects = objects
        self._is_under_way = False
        self._made: list[Upload] = []

    def begin(self, most: int) -> None:
        """Puts the oldest compacted file into the store, if more than `most` bytes of them are
        here. On the loop, while no step is under way."""
        if self._objects is None or self._is_under_way or self._made or not self._objects.is_ready:
            return
        file = self._series.next_upload(most)
        if file is not None:
            self._is_under_way = True
            number = file.head.number
            done = partial(self._is_made, number)
            self._objects.put(file.path, file.head.length, number, done)

    def _is_made(self, number: int, object: str, etag: str) -> None:
        """The object was made, or `object` is empty."""
        self._is_under_way = False
        if object:
            self._made.append(Upload(number, object, etag))

    def take(self) -> list[Upload]:
        """Those that no stub stands for yet. On the loop."""
        made, self._made = self._made, []
        return made

    def note(self, made: list[Upload]) -> None:
        """Puts stubs in the place of files that are objects now. In the thread. Raises OSError: the
        files stay as they are, and their objects are given up."""
        for place, upload in enumerate(made):
            try:
                if not self._series.uploaded(*upload):
                    self._objects.delete(upload.object)
            except OSError:
                for each in made[place:]:
                    self._objects.delete(each.object)
                raise

    def end(self) -> None:
        """The vhost is deleted, and all objects of its index with it. On the loop."""
        if self._objects is not None:
            self._objects.end()
