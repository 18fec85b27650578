"""What a row of the table is, and what it can ask of the run it is part of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import limits, processes
from tests.bench.leveret import Leveret

BLOCK = 1 << 20


@dataclass(frozen=True)
class Figure:
    """One measured value. `target` and `ceiling` are texts; `met` is None where there is no
    target."""

    what: str
    value: str
    target: str = ""
    ceiling: str = ""
    met: bool | None = None

    def line(self, row: str) -> str:
        """As the table prints it."""
        verdict = {None: "", True: "met", False: "MISSED"}[self.met]
        beside = f"{verdict:6} {self.target:34} {self.ceiling}".rstrip()
        return f"{row:5} {self.what:58} {self.value:>24}  {beside}"


@dataclass
class Bench:
    """One run: where data directories go, and whether it is a small one. `full` asks for the sizes
    that take tens of minutes."""

    base: Path
    quick: bool = False
    full: bool = False
    brokers: list[Leveret] = field(default_factory=list)
    commit: str = ""

    def sized(self, quick: int, usual: int, full: int | None = None) -> int:
        """A count for this run's size."""
        if self.quick:
            return quick
        return full if self.full and full is not None else usual

    def broker(self, *extra: str) -> Leveret:
        """A started broker on a directory of its own; it is stopped with the row."""
        broker = Leveret(self.base / f"broker.{len(self.brokers)}.{time.monotonic_ns()}")
        broker.extra = list(extra)
        broker.start()
        self.commit = broker.version
        self.brokers.append(broker)
        return broker

    def end(self) -> None:
        """Stops what the row started."""
        while self.brokers:
            self.brokers.pop().stop()

    def sync_ms(self) -> float:
        """p50 of one append and fdatasync now (ms)."""
        return limits.measure_sync(self.base, 0.3 if self.quick else 1.0).p50_ms

    def write_rate(self) -> float:
        """Bytes per second of one file written in blocks of 1 MiB and synced at its end."""
        path = self.base / "write-probe"
        blocks = self.sized(64, 512)
        block = os.urandom(BLOCK)
        began = time.perf_counter()
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            for _ in range(blocks):
                os.write(descriptor, block)
            os.fdatasync(descriptor)
            return blocks * BLOCK / (time.perf_counter() - began)
        finally:
            os.close(descriptor)
            path.unlink()

    def anonymous_bytes(self, broker: Leveret) -> int:
        """RssAnon of the broker now."""
        return processes.resident_bytes(broker.pids(), "RssAnon")


Measure = Callable[[Bench], Iterator[Figure]]


@dataclass(frozen=True)
class Row:
    """A row of the table: its name, what it proves, and the function that yields its figures as
    they are measured."""

    name: str
    proves: str
    measure: Measure
