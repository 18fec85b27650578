"""Settings as JSON files that a person can read, and edit while the broker is down.

A file is replaced whole: temporary file, fsync, rename, fsync of the directory. Encoding and
writing may wait, so the server calls `flush` in a thread; everything else is memory.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")

# Hashes of passwords are in there.
_MODE = 0o600


class SettingsError(Exception):
    """A settings file cannot be used. The text is one line that names the file and the place."""


class Disk(Protocol):
    """What settings need of the file system; `broker.store.files.disk` has it."""

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes, mode: int) -> None: ...


class SettingsFiles:
    """The settings files of one data directory.

    `put` remembers the newest content of a file; `flush` writes what was put since.
    """

    def __init__(self, directory: str | Path, disk: Disk) -> None:
        self.directory = Path(directory)
        self.disk = disk
        self._dirty: dict[str, Any] = {}
        self._dirty_lock = threading.Lock()
        self._flush_lock = threading.Lock()

    def path(self, name: str) -> Path:
        return self.directory / name

    def load(self, name: str, shape: type[T]) -> T | None:
        """The content of a file in the given shape, None if there is no such file.

        Raises SettingsError if it cannot be read, is no JSON, or has another shape.
        """
        path = self.path(name)
        try:
            text = self.disk.read(str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            value = json.loads(text.decode("utf-8"))
        except json.JSONDecodeError as error:
            place = f"line {error.lineno}, column {error.colno}"
            raise SettingsError(f"{path}: {place}: not JSON: {error.msg}") from error
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            column = error.start - text.rfind(b"\n", 0, error.start)
            place = f"line {line}, column {column}"
            raise SettingsError(f"{path}: {place}: not UTF-8 text") from error
        except RecursionError as error:
            raise SettingsError(f"{path}: nested too deeply") from error
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise SettingsError(f"{path}: {error}") from error

    def put(self, name: str, value: Any) -> None:
        """Gives a file new content, to be written by the next `flush`.

        `value` is anything msgspec turns into JSON; it is not copied and must not change any more.
        """
        with self._dirty_lock:
            self._dirty[name] = value

    @property
    def dirty(self) -> bool:
        """Whether something was put that is not on disk yet."""
        return bool(self._dirty) or self._flush_lock.locked()

    def flush(self) -> None:
        """Writes what was put. When it returns, all that was put before the call is on disk.

        Raises OSError if a file cannot be written; it stays dirty then.
        """
        with self._flush_lock:
            with self._dirty_lock:
                writes, self._dirty = self._dirty, {}
            while writes:
                name, value = next(iter(writes.items()))
                try:
                    self.disk.write_atomic(str(self.path(name)), _text(value), _MODE)
                except BaseException:
                    with self._dirty_lock:
                        self._dirty = {**writes, **self._dirty}
                    raise
                del writes[name]


def _text(value: Any) -> bytes:
    # In C: `json` takes 15 times as long to indent, in which the loop waits for the interpreter.
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
