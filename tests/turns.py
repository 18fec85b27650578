"""The longest turn of an appliance's event loops, by the CPU time of their threads."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from tests.appliance import ROOT, Appliance

METER = ROOT / "tests" / "meter"


@dataclass(frozen=True)
class Turns:
    """Since the last `forget`: turns above 10 ms, and the longest turn and callback, in ms."""

    slow: int
    longest: float
    longest_callback: float


class TurnMeter:
    """`TurnMeter(appliance)` before the appliance starts; it measures each of its processes."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance = appliance
        self._directory = appliance.log_file.parent / "turns"
        self._directory.mkdir(exist_ok=True)
        spec = importlib.util.spec_from_file_location("meter", METER / "sitecustomize.py")
        assert spec is not None and spec.loader is not None
        self._meter = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._meter)
        appliance.environment |= {
            "PYTHONPATH": str(METER),
            "LEVERET_TEST_TURNS": str(self._directory),
        }

    def _file(self, process: str, kind: str) -> Path:
        return self._directory / f"{self.appliance.pids[process]}.{kind}"

    def of(self, process: str) -> Turns:
        """Figures of the process called `process`: broker, web or reports."""
        slow, turn, callback = self._meter.FIGURES.unpack(self._file(process, "turns").read_bytes())
        return Turns(slow, turn / 1e6, callback / 1e6)

    def forget(self) -> None:
        """Begins anew, for every process. What a start needs once is not counted then."""
        for pid in self.appliance.pids.values():
            for kind in ("turns", "slow"):
                path = self._directory / f"{pid}.{kind}"
                if path.exists():
                    with path.open("r+b") as file:
                        # The process has mapped it: it must keep its place and its size.
                        file.write(bytes(self._meter.FIGURES.size)) if kind == "turns" else (
                            file.truncate(0)
                        )

    def slow_callbacks(self, process: str) -> list[str]:
        """A line for each callback of more than 10 ms."""
        return [line for line in self._slow(process) if " ms turn, " not in line]

    def slow_turns(self, process: str) -> list[str]:
        """A line for each turn of more than 10 ms, with its longest callbacks."""
        return [line for line in self._slow(process) if " ms turn, " in line]

    def _slow(self, process: str) -> list[str]:
        path = self._file(process, "slow")
        return path.read_text().splitlines() if path.exists() else []

    def garbage(self, process: str, patience_s: float = 30) -> dict[str, int]:
        """Objects in circles that a process held and that nothing refers to, by type. From the
        first call on all that come are found by the next."""
        path = self._file(process, "garbage")
        path.unlink(missing_ok=True)
        os.kill(self.appliance.pids[process], signal.SIGUSR2)
        until = time.monotonic() + patience_s
        while not path.exists():
            assert time.monotonic() < until, f"the process {process} does not look for garbage"
            time.sleep(0.02)
        lines = (line.split(" ", 1) for line in path.read_text().splitlines())
        return {name: int(count) for count, name in lines}
