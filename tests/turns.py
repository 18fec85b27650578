"""The longest turn of an appliance's event loops, by the CPU time of their threads."""

from __future__ import annotations

import importlib.util
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
        self._appliance = appliance
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
        return self._directory / f"{self._appliance.pids[process]}.{kind}"

    def of(self, process: str) -> Turns:
        """Figures of the process called `process`: broker, web or reports."""
        slow, turn, callback = self._meter.FIGURES.unpack(self._file(process, "turns").read_bytes())
        return Turns(slow, turn / 1e6, callback / 1e6)

    def forget(self) -> None:
        """Begins anew, for every process. What a start needs once is not counted then."""
        for pid in self._appliance.pids.values():
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
        path = self._file(process, "slow")
        return path.read_text().splitlines() if path.exists() else []
