"""What is true of a data directory as a whole: the version of its layout, and whether the last run
ended because the disk failed.
"""

from __future__ import annotations

import stat
from pathlib import Path

from broker.store.directory.identities import APPLIANCE, NODE
from broker.store.directory.snapshot import INCOMPLETE
from broker.store.files import disk

SCHEMA_VERSION = 2
"""1: segments and acks as they are (directories of that time have no file that says so). 2: also
`meta` files, holes and `quarantine/`."""

_SUMMARY = b"LVRM"
"""How a classic queue's summary begins, which is written only when its segment is synced."""

_VERSION_FILE = "schema_version"
_FAILED_FILE = "sync_failed"


class SchemaError(ValueError):
    """The directory is of a version that this program cannot read."""


def check_schema(directory: str) -> int:
    """Makes sure that this program can read the directory, and notes its own version in it.

    Returns the version that was found; a new directory has this program's. An older one is read as
    it is: nothing in it has to be converted. Raises SchemaError or OSError.
    """
    if disk.exists(f"{directory}/{INCOMPLETE}"):
        raise SchemaError(
            f"{directory} is a backup that was not finished: start on a whole one, or make it again"
        )
    path = f"{directory}/{_VERSION_FILE}"
    if disk.exists(path):
        text = disk.read(path).decode("ascii", "replace").strip()
        if not text.isdigit() or int(text) == 0:
            raise SchemaError(
                f"{path}: '{text[:40]}' is not a schema version; restore the file or a backup"
            )
        found = int(text)
    else:
        found = 1 if disk.exists(f"{directory}/boots") else SCHEMA_VERSION
    if found > SCHEMA_VERSION:
        raise SchemaError(
            f"{directory} has schema version {found}; this program reads versions up to "
            f"{SCHEMA_VERSION}: start the newer program that wrote it, or another data directory"
        )
    if found != SCHEMA_VERSION or not disk.exists(path):
        disk.write_atomic(path, f"{SCHEMA_VERSION}\n".encode())
    return found


def note_failed_sync(directory: str, why: str) -> None:
    """Leaves a mark for the next start. It need not be on disk: after a new boot of the machine the
    page cache holds nothing that the disk does not. Raises OSError."""
    disk.append(f"{directory}/{_FAILED_FILE}", f"{why}\n".encode())


def failed_sync(directory: str) -> bool:
    """Whether the last run ended with a failed write or sync: what can be read may not be on
    disk."""
    return disk.exists(f"{directory}/{_FAILED_FILE}")


def forget_failed_sync(directory: str) -> None:
    """Everything that matters was written again and synced."""
    disk.unlink(f"{directory}/{_FAILED_FILE}")
    disk.sync_directory(directory)


def write_again(directory: str) -> None:
    """Writes the settings files, the journals, the shared bodies and the segments that are not
    known to be on disk into new files and syncs those. Raises OSError."""
    paths = [
        f"{directory}/{name}"
        for name in disk.listdir(directory)
        if name.endswith((".json", ".journal"))
        or name in ("boots", APPLIANCE, NODE, "secrets_key", _VERSION_FILE)
    ]
    for vhost in disk.listdir(f"{directory}/vhosts"):
        paths.append(f"{directory}/vhosts/{vhost}/definitions.journal")
        for queue in disk.listdir(f"{directory}/vhosts/{vhost}/queues"):
            paths += _unsealed(f"{directory}/vhosts/{vhost}/queues/{queue}")
        # Nothing says of shared bodies when they were synced.
        bodies = f"{directory}/vhosts/{vhost}/bodies"
        paths += [f"{bodies}/{name}" for name in disk.listdir(bodies) if name.endswith(".bdy")]
    for path in paths:
        if disk.exists(path):
            # Some hold secrets, and only the owner may read them.
            mode = stat.S_IMODE(Path(path).stat().st_mode)
            disk.write_atomic(path, disk.read(path), mode)


def _unsealed(directory: str) -> list[str]:
    """A queue's files that no summary says were synced."""
    names = disk.listdir(directory)
    sealed = {
        name[5:]
        for name in names
        if name.startswith("meta.") and disk.read_part(f"{directory}/{name}", 0, 4) == _SUMMARY
    }
    return [
        f"{directory}/{name}"
        for name in names
        if name.partition(".")[0] == "acks"
        or (not name.endswith(".tmp") and name.partition(".")[2] not in sealed)
    ]
