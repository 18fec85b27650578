"""Copies the usage tables and the results of reports to the object store of the settings.

The local directory stays what counts: a store that does not answer keeps nothing from being
computed, and the next run copies what is missing. Objects lie under the names of the files below
the data directory. Table files come first and the manifest last, so that who reads the manifest
finds the files that it names; what it no longer names is deleted RETIRED_MS later, as here.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from .ledger import FOLDER
from .placement import Write
from .runs import RESULT, Runs
from .stores import Store, StoreFailed
from .tables import MANIFEST, Manifest, Tables

TABLES = "usage/tables"
OWNER = "owner"
"""Names the appliance whose copy lies in a store: here a file beside the tables."""


def copy(store: Store, tables: Tables, reports: Path, report: str, run_id: str) -> int:
    """Bring a store up to date after a run; how many objects were written. Raises OSError, and
    StoreFailed, also if the store holds the tables of another appliance.
    """
    _own(store, tables)
    written = _copy_tables(store, tables)
    written += _copy_results(store, Runs(reports), report, run_id)
    present = store.sizes(f"reports/{FOLDER}")
    for path in sorted((reports / FOLDER).glob("*/*")):
        name = f"reports/{FOLDER}/{path.parent.name}/{path.name}"
        # A month is closed once: what is there does not change.
        if path.is_file() and present.get(name) != path.stat().st_size:
            store.put(name, path)
            written += 1
    return written


def _own(store: Store, tables: Tables) -> None:
    path = tables.directory / OWNER
    own = path.read_text().strip() if path.exists() else ""
    there = (store.get(f"{TABLES}/{OWNER}") or b"").decode(errors="replace").strip()
    if there and there != own:
        raise StoreFailed(
            f"{store.url} holds the usage of another appliance: give each one a prefix of its own,"
            f" or delete {TABLES}/{OWNER} there if this one takes its place"
        )
    if not own:
        own = secrets.token_hex(16)
        tables.placement.carry([Write(str(path), f"{own}\n".encode())])
    if not there:
        store.put(f"{TABLES}/{OWNER}", f"{own}\n".encode())


def _copy_tables(store: Store, tables: Tables) -> int:
    manifest = tables.manifest
    before = store.get(f"{TABLES}/{MANIFEST}")
    known = msgspec.json.decode(before, type=Manifest) if before else Manifest()
    if known.generation > manifest.generation:
        known = Manifest()  # a backup was restored here: numbers of files come a second time
    present = store.sizes(TABLES)
    same = {file.path: file for file in known.files}
    written = 0
    for file in manifest.files:
        name = f"{TABLES}/{file.path}"
        if same.get(file.path) != file or present.get(name) != file.bytes:
            store.put(name, tables.directory / file.path)
            written += 1
    if known != manifest:
        store.put(f"{TABLES}/{MANIFEST}", msgspec.json.encode(manifest))
        written += 1
    kept = {f"{TABLES}/{file.path}" for file in manifest.files}
    kept |= {f"{TABLES}/{name}" for name in (*manifest.retired, MANIFEST, OWNER)}
    store.delete(name for name in present if name not in kept)
    return written


def _copy_results(store: Store, runs: Runs, report: str, run_id: str) -> int:
    prefix = f"reports/{report}"
    here = runs.ids(report)
    gone = [name for name in store.sizes(prefix) if name.split("/")[2] not in here]
    files = sorted((runs.path(report, run_id) / RESULT).glob("*.parquet"))
    for path in files:
        store.put(f"{prefix}/{run_id}/{RESULT}/{path.name}", path)
    store.delete(gone)
    return len(files)
