"""Definitions of a data directory that no broker serves: its settings files and journals are read
by a broker that is never started, on a copy, so that nothing in the directory changes.

Messages are not copied, and not looked at.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.definitions.exporting import Export
from broker.server.app import Broker, StartError
from broker.server.control.definitions_verbs import head
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.settings.config import Config

JOURNAL = "definitions.journal"
_KEPT = ("boots", "schema_version", "incomplete_backup", "secrets_key")
UNFINISHED = "definitions_import.json"
"""An import that was interrupted; the next start of a broker completes it."""


class CannotRead(Exception):
    """A data directory whose definitions cannot be read; one line says why and what to do."""


class Offline(NamedTuple):
    """The document, and what was found damaged, as sentences."""

    document: dict[str, Any]
    problems: list[str]


def definitions_of(config: Config, copy: Path, *, secrets: bool) -> Offline:
    """All definitions in `config.data_dir`. `copy` is an empty directory for what is read, which
    holds hashes and keys afterwards. Raises CannotRead."""
    directory = config.data_dir
    if not (directory / "vhosts.json").exists() and not (directory / "users.json").exists():
        raise CannotRead(f"{directory} is no data directory: it has no vhosts.json and users.json")
    with _locked(directory):
        if (directory / UNFINISHED).exists():
            raise CannotRead(
                f"an import of definitions was interrupted in {directory}: start a broker on it, "
                "which completes the import, then use export_definitions"
            )
        try:
            _copy(directory, copy)
        except OSError as error:
            raise CannotRead(f"cannot copy from {directory}: {error}") from None
    broker = Broker(
        dataclasses.replace(
            config,
            data_dir=copy,
            no_sync=True,
            disk_reserve=0,
            load_definitions=None,
            tls_cert_file=None,
        )
    )
    try:
        broker.recover()
    except StartError as error:
        raise CannotRead(str(error).replace(str(copy), str(directory))) from None
    export = Export(
        broker, list(broker.vhosts.values()), scoped=False, target=None, secrets=secrets
    )
    found: dict[str, Any] = head("cluster")
    for section, rows in export.sections():
        found[section] = [row for row in rows if row is not None]
    return Offline(found, broker.problems)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """No broker serves the directory meanwhile."""
    try:
        lock = disk.lock(str(directory / "lock"))
    except BlockingIOError:
        raise CannotRead(
            f"{directory} is in use by a broker; export_definitions asks that one"
        ) from None
    except OSError as error:
        raise CannotRead(f"cannot lock {directory}: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(lock)


def _copy(directory: Path, copy: Path) -> None:
    """What definitions are read from: settings files, the count of starts, keys, journals."""
    names = [path for path in directory.iterdir() if path.suffix == ".json" or path.name in _KEPT]
    for path in (*names, *directory.glob(f"vhosts/*/{JOURNAL}")):
        place = copy / path.relative_to(directory)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
