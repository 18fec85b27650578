"""The doors that are called in a process of their own."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.fuzz import files, inside, parsers
from tests.fuzz.found import Count

MEMORY = Path("/dev/shm")
SLICE = 2_000
"""Mutants between two looks at the clock."""


def in_process(door: str, seed: int, first: int, number_of: int, until: float) -> Count:
    """A door without a socket, in the process that calls this; `until` is of the monotonic
    clock."""
    if door == "amqp-inside":
        place = MEMORY if MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(dir=place) as directory:
            return inside.fuzz(Path(directory) / "data", seed, first, number_of, until)
    total = Count()
    while total.mutants < number_of and time.monotonic() < until and not total.findings:
        amount = min(SLICE, number_of - total.mutants)
        at = first + total.mutants
        one = (
            files.fuzz(seed, at, amount)
            if door == "store"
            else parsers.fuzz(door, seed, at, amount)
        )
        total.add(one)
    return total
