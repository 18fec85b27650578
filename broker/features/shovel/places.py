"""How far each shovel has come in the stream that it reads, kept in `shovel_places.json`."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.settings.files import SettingsFiles

FILE = "shovel_places.json"

Key = tuple[str, str]


class Place(msgspec.Struct, frozen=True):
    """`of` is the stream, as the process that runs shovels names it; below `offset` all is settled,
    and nothing above `noted` was published."""

    vhost: str
    name: str
    of: str
    offset: int
    noted: int


class Places:
    """The places of all shovels. Each change is written by the next flush of the settings."""

    def __init__(self, files: SettingsFiles) -> None:
        self._files = files
        self._all: dict[Key, Place] = {}

    def load(self) -> None:
        """Raises SettingsError."""
        rows = self._files.load(FILE, list[Place]) or []
        self._all = {(row.vhost, row.name): row for row in rows}

    def row(self, key: Key) -> dict[str, Any] | None:
        """What the process that runs shovels gets."""
        found = self._all.get(key)
        if found is None:
            return None
        return {"of": found.of, "offset": found.offset, "noted": found.noted}

    def put(self, place: Place) -> None:
        self._all[place.vhost, place.name] = place
        self._save()

    def forget(self, key: Key) -> None:
        """The shovel was deleted."""
        if self._all.pop(key, None) is not None:
            self._save()

    def _save(self) -> None:
        self._files.put(FILE, list(self._all.values()))
