"""Runs `manage.py` with every allocation of Python objects counted, for the allocation test.

`python -m tests.bench.counted broker ...`; the counter goes to the file named by the environment
variable COUNT_ALLOCATIONS_IN.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.bench.generator import GeneratorFailed, cache_directory

SOURCE = Path(__file__).with_name("allocations.c")


def build() -> Path:
    """Path of the compiled counter; compiles it if the source is newer."""
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    library = cache_directory() / f"allocations-{version}.so"
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        # Of this process: tests that run beside each other may build it at once.
        fresh = library.with_suffix(f".{os.getpid()}")
        include = sysconfig.get_path("include")
        command = ["gcc", "-O2", "-Wall", "-shared", "-fPIC", f"-I{include}"]
        done = subprocess.run(
            [*command, "-o", str(fresh), str(SOURCE)], capture_output=True, text=True
        )
        if done.returncode:
            raise GeneratorFailed(f"gcc could not build {SOURCE.name}:\n{done.stderr}")
        fresh.replace(library)
    return library


def install(path: str) -> None:
    """Starts counting into `path`."""
    loader = importlib.machinery.ExtensionFileLoader("allocations", str(build()))
    spec = importlib.util.spec_from_loader("allocations", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.install(path)


if __name__ == "__main__":
    manage = Path(__file__).resolve().parents[2] / "manage.py"
    install(os.environ["COUNT_ALLOCATIONS_IN"])
    sys.argv = [str(manage), *sys.argv[1:]]
    runpy.run_path(str(manage), run_name="__main__")
