"""The second build: the few modules of the broker in which faults can be planted.

The product holds none of these faults. `build()` compiles the modules with them into
`build/planted`, once for each state of their sources; `use(fault)` lets this process import them in
place of the product's, and has to be called before any of them is imported.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from tests.appliance import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import compiled  # tools/ is no package

VARIABLE = "PLANTED_FAULT"
PLACE = ROOT / "build" / "planted"
FAULTS = {
    "no sync": "lost",
    "no directory sync": "lost",
    "confirm before the write": "lost",
    "confirm before the sync": "lost",
    "skip the last record": "lost",
    "keep acks": "stray",
    "reuse numbers": "given twice",
    "requeue at the end": "gave",
    "hand over unsynced": "lost",
    "no check": "altered",
    "ignore a full disk": "",
    "confirm one more": "",
}
"""Fault -> a word of what those who look for faults say about it."""


def build() -> Path:
    """Compiles the modules if their sources have changed; where they lie."""
    PLACE.mkdir(parents=True, exist_ok=True)
    noted = PLACE / "built.json"
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of all processes that run tests, one compiles
        flags = (*compiled.flags(), "planted")
        wanted = {compiled.dotted(path): compiled.digest(path, flags) for path in planting()}
        if not noted.exists() or json.loads(noted.read_text()) != wanted:
            noted.unlink(missing_ok=True)
            print(f"Compiling {len(wanted)} modules with planted faults", file=sys.stderr)
            result = subprocess.run(
                [
                    *(sys.executable, "setup.py", "-q", "build_ext"),
                    *("--build-lib", str(PLACE), "--build-temp", str(PLACE / "objects")),
                ],
                cwd=ROOT,
                env={**os.environ, "LEVERET_PLANTED": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                text=True,
            )
            if result.returncode != 0:
                raise RuntimeError(f"{result.stdout}\nno module with planted faults was compiled")
            noted.write_text(json.dumps(wanted))
    return PLACE


def planting() -> list[Path]:
    """The sources of the modules in which faults can be planted."""
    found: list[Path] = compiled.planting()
    return found


def product() -> list[Path]:
    """All compiled modules of the product."""
    return [compiled.binary(source) for source in compiled.modules(["broker"])]


def binaries() -> list[Path]:
    """The compiled modules with planted faults, after `build`."""
    return [PLACE / compiled.binary(source).relative_to(ROOT) for source in planting()]


class _Finder(MetaPathFinder):
    """Finds the modules of the second build before those of the product."""

    def __init__(self) -> None:
        self._names = {compiled.dotted(source) for source in planting()}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._names:
            return None
        return PathFinder.find_spec(name, [str(PLACE.joinpath(*name.split(".")[:-1]))])


def use(fault: str) -> None:
    """Plants one of FAULTS in this process. Raises KeyError for another one, RuntimeError if a
    module of the product was imported already."""
    FAULTS[fault]
    finder = _Finder()
    early = sorted(finder._names & sys.modules.keys())
    if early:
        raise RuntimeError(f"imported before a fault was planted: {early}")
    build()
    os.environ[VARIABLE] = fault
    sys.meta_path.insert(0, finder)


if __name__ == "__main__":  # `make test` calls it, so that no test waits for the compiler
    build()
