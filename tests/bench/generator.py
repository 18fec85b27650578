"""Builds the load generator (loadgen/) when its source is newer than the program, and runs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("loadgen")


class GeneratorFailed(Exception):
    """The generator could not run, or counted lost, doubled, disordered or altered messages."""


def cache_directory() -> Path:
    """Where what the benchmark compiles and downloads is kept: outside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    directory = Path(base) / "leveret-bench"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def build() -> Path:
    """Path of the compiled generator; compiles it with gcc if the source is newer."""
    program = cache_directory() / "loadgen"
    newest = max(file.stat().st_mtime for file in SOURCE.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        # Of this process: tests that run beside each other may build it at once.
        fresh = program.with_suffix(f".{os.getpid()}")
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-o", str(fresh), str(SOURCE / "main.c")]
        with_tls = [*command, "-DWITH_TLS", "-lssl", "-lcrypto"]
        done = subprocess.run(with_tls, capture_output=True, text=True)
        if done.returncode:  # no libssl-dev here
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise GeneratorFailed(f"gcc could not build the load generator:\n{done.stderr}")
        fresh.replace(program)
    return program


def run(port: int, options: list[str], cpu_of: list[int] | None = None) -> dict[str, Any]:
    """Loads the broker at 127.0.0.1:port; returns the generator's result.

    Its keys are those of report() in loadgen/main.c.

    cpu_of: process ids whose CPU time over the measured part is reported per message.
    Raises GeneratorFailed when it could not run or when its counts are wrong.
    """
    command = [str(build()), "--port", str(port), *options]
    if cpu_of:
        command += ["--cpu-of", ",".join(map(str, cpu_of))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise GeneratorFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}".strip())
    return read(done.stdout)


def read(line: str) -> dict[str, Any]:
    """The line that a run prints."""
    result: dict[str, Any] = json.loads(line)
    return result
