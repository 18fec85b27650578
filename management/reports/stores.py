"""An object store: `s3://bucket/prefix`, or a directory as `file:///path`. Through obstore.

Credentials of S3 come from the environment, under the names of AWS (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), or from the metadata service of a machine of AWS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# A store that does not answer holds a run up for so long at most, for each object.
RETRIES = 3
ANSWER_SECONDS_MAX = 30


class StoreFailed(Exception):
    """What could not be done with which object of which store, and why."""


class Place(msgspec.Struct, frozen=True):
    """Where a store is. `endpoint` is empty for AWS itself; `http://` is allowed."""

    url: str = ""
    endpoint: str = ""
    region: str = ""


class Store:
    """The objects below a place; names are relative to it, with `/` between their parts."""

    def __init__(self, place: Place) -> None:
        """Raises StoreFailed if there is no such kind of store, or obstore is not installed."""
        try:
            from obstore.store import LocalStore, S3Store
        except ImportError:
            raise StoreFailed(
                f"{place.url} needs the package obstore: pip install obstore"
            ) from None

        self.url = place.url.rstrip("/")
        scheme, _, rest = self.url.partition("://")
        if scheme not in ("s3", "file") or not rest:
            raise StoreFailed(f"{place.url!r} is not s3://bucket/prefix or file:///directory")
        self._store: LocalStore | S3Store
        if scheme == "file":
            self._store = LocalStore(rest, mkdir=True)
            return
        bucket, _, prefix = rest.partition("/")
        limit = timedelta(seconds=ANSWER_SECONDS_MAX)
        settings = {"endpoint": place.endpoint, "region": place.region, "prefix": prefix}
        chosen: dict[str, Any] = {name: text for name, text in settings.items() if text}
        self._store = self._tried(
            "",
            lambda: S3Store(
                bucket,
                client_options={"allow_http": place.endpoint.startswith("http://")},
                retry_config={"max_retries": RETRIES, "retry_timeout": limit},
                **chosen,
            ),
        )

    def get(self, name: str) -> bytes | None:
        """An object, None if there is none of this name. Raises StoreFailed."""
        import obstore

        def get() -> bytes | None:
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

        return self._tried(name, get)

    def put(self, name: str, content: bytes | Path) -> None:
        """Make an object of bytes or of a file, in place of one of this name: whole or not at all.
        Raises StoreFailed."""
        import obstore

        self._tried(name, lambda: obstore.put(self._store, name, content))

    def fetch(self, name: str, path: Path) -> None:
        """Write an object to a file. Raises OSError, and StoreFailed if there is none."""
        import obstore

        def fetch() -> None:
            with path.open("wb") as file:
                for part in obstore.get(self._store, name).stream():
                    file.write(part)

        self._tried(name, fetch)

    def sizes(self, prefix: str) -> dict[str, int]:
        """The names below a prefix, a whole part of names, and their bytes. Raises StoreFailed."""
        import obstore

        return self._tried(
            prefix,
            lambda: {
                one["path"]: one["size"]
                for part in obstore.list(self._store, prefix)
                for one in part
            },
        )

    def delete(self, names: Iterable[str]) -> None:
        """Take objects away. Raises StoreFailed."""
        import obstore

        gone = sorted(names)
        if gone:
            self._tried(gone[0], lambda: obstore.delete(self._store, gone))

    def _tried(self, name: str, do: Callable[[], T]) -> T:
        """What `do` returns; errors in one line, with what they are about."""
        from obstore.exceptions import BaseError

        try:
            return do()
        except (BaseError, FileNotFoundError) as error:
            text = str(error).split("Debug source", 1)[0].split("\n\n", 1)[0]
            text = " ".join(text.split())[:500]
            raise StoreFailed(f"{self.url}/{name}: {text}") from None
