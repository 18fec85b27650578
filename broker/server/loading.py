"""`load_definitions`: a definitions file, or a directory of them, imported at every start.

The files are read before anything else, so that a directory that is new gets no default user where
they bring users, and no default vhost where they bring vhosts. They are imported as one, all or
nothing, before any listener opens; a fault ends the start.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.definitions.applying import Failed
from broker.definitions.document import Fault, parse
from broker.settings.files import SettingsError
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.definitions")

LOADED = "definitions_loaded"
"""Holds the SHA-256 of the files that were loaded last."""

_LISTED = 50


class Loading:
    """What is to be loaded at this start."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._documents: list[tuple[str, Mapping[str, Any]]] = []
        self._digest = ""
        self.first_vhost: str | None = None
        """What a new data directory begins with: a name, or empty for what the files bring."""
        self.first_user = ""
        """The user that was made for a new data directory, if any."""

    def prepare(self) -> None:
        """Reads users and the files to load, and makes the first user where a new data directory
        has none and the files bring none. Raises SettingsError, one line."""
        access, config = self._broker.access, self._broker.config
        access.parameters.most = config.parameters_max
        access.parameters.key.path = config.secrets_key_file
        is_new = not access.load()
        parameters = access.parameters
        for row in parameters.unreadable:
            log.error("secrets of a parameter cannot be read: %s", row)
        if parameters.unreadable:
            self._broker.problems.append(
                f"the passwords of {len(parameters.unreadable)} parameters cannot be decrypted, and"
                f" what needs them does not run: put their key into {parameters.key.path} and"
                " restart, or save them again with their passwords (the log lists them)"
            )
        self._read()
        if is_new:
            self.first_vhost = "" if self._brings("vhosts") else "/"
            if not self._brings("users"):
                access.create_first_user(config.default_user, config.default_password)
                self.first_user = config.default_user

    def _brings(self, section: str) -> bool:
        return any(members.get(section) for _, members in self._documents)

    def _read(self) -> None:
        where = self._broker.config.load_definitions
        if where is None:
            return
        digest = hashlib.sha256()
        for path in _files(where):
            try:
                text = disk.read(str(path))
            except OSError as error:
                raise SettingsError(f"load_definitions {path}: {error.strerror}") from None
            digest.update(f"{path.name} {len(text)}\n".encode() + text)
            self._documents.append((str(path), _parsed(path, text)))
        self._digest = digest.hexdigest()

    async def load(self) -> None:
        """Completes an import that a crash interrupted, and imports what was read. Raises
        SettingsError, one line; nothing is changed then."""
        await self._broker.importing.resume()
        config = self._broker.config
        if not self._documents:
            return
        note = f"{config.data_dir}/{LOADED}"
        before = disk.read(note).decode("ascii", "replace").strip() if disk.exists(note) else ""
        if config.load_definitions_if_changed and before == self._digest:
            log.info("load_definitions: unchanged since the last start, not loaded again")
            return
        try:
            plan = await self._broker.importing.load(self._documents)
        except (Fault, Failed) as error:
            raise SettingsError(f"load_definitions {error}") from None
        for row in plan.left_out[:_LISTED]:
            log.warning("load_definitions: left out: %s", row)
        if len(plan.left_out) > _LISTED:
            log.warning("load_definitions: %d more left out", len(plan.left_out) - _LISTED)
        for row in plan.inactive[:_LISTED]:
            log.warning("load_definitions: %s", row)
        log.info("load_definitions: %d changes from %s", plan.made, config.load_definitions)
        if not any("administrator" in user.tags for user in self._broker.access.users.values()):
            log.warning("no user is an administrator: neither page nor API can change users")
        try:
            disk.write_atomic(note, f"{self._digest}\n".encode())
        except OSError as error:
            log.error("%s cannot be written: %s", note, error)
        self._documents = []


def _files(where: Path) -> list[Path]:
    """The file, or the JSON files of a directory by name."""
    try:
        names = disk.listdir(str(where))
    except NotADirectoryError:
        return [where]
    except OSError as error:
        raise SettingsError(f"load_definitions {where}: {error.strerror}") from None
    if not names and not disk.exists(str(where)):
        raise SettingsError(f"load_definitions {where}: there is no such file")
    found = sorted(name for name in names if name.endswith(".json"))
    if not found:
        raise SettingsError(f"load_definitions {where}: the directory holds no file *.json")
    return [where / name for name in found]


def _parsed(path: Path, text: bytes) -> Mapping[str, Any]:
    steps = parse(text)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        members: Mapping[str, Any] = end.value
        return members
    except Fault as error:
        raise SettingsError(f"load_definitions {path}: {error}") from None
