"""What a door is asked for by the runs, and what they keep: counts, findings, the corpus."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"
TURN_MAX_S = 0.010
"""Longest turn of a loop that is no finding, in CPU time of its thread."""
GROWTH_MAX = 48 << 20
"""Bytes that a process may grow by from the tenth part of a run to its end."""


class FoundError(AssertionError):
    """A process hung, crashed or told of an internal error; the text says at which mutant."""


@dataclass
class Count:
    """What went through one door."""

    mutants: int = 0
    octets: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    """CPU seconds of the longest call, or turn of a broker's loop."""
    longest_callback: float = 0.0
    """CPU seconds of the longest part of a turn that serves one client; where there is a loop."""
    again: list[str] = field(default_factory=list)
    """Turns that were too long, behind which mutants were sent again."""
    findings: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Takes another part's figures."""
        self.mutants += other.mutants
        self.octets += other.octets
        self.seconds += other.seconds
        self.longest = max(self.longest, other.longest)
        self.longest_callback = max(self.longest_callback, other.longest_callback)
        self.again += other.again
        self.findings += other.findings

    def __str__(self) -> str:
        rate = self.mutants / self.seconds if self.seconds else 0
        text = f"{self.mutants:10,} mutants {self.octets:14,} octets {self.seconds:7.0f} s"
        text += f" {rate:8,.0f}/s, longest turn {self.longest * 1000:.1f} ms"
        if self.longest_callback:
            text += f", callback {self.longest_callback * 1000:.1f} ms"
        if self.again:
            text += f", {len(self.again)} slow turns, not as slow again"
        told = [*(f"not again: {each}" for each in self.again[:5]), *self.findings[:10]]
        return text + "".join(f"\n    {each}" for each in told)


def chance_of(seed: int, door: str, number: int) -> random.Random:
    """All that a mutant is made from: it can be made again from its number."""
    return random.Random(f"{seed}/{door}/{number}")


def corpus(door: str) -> list[bytes]:
    """The inputs that found something once, and seeds, of a door."""
    return [path.read_bytes() for path in sorted((CORPUS / door).glob("*.bin"))]


def keep(door: str, data: bytes) -> Path:
    """Saves a finding under its digest; the next run begins with it."""
    directory = CORPUS / door
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.write_bytes(data)
    return path


def minimise(data: bytes, fails: Callable[[bytes], bool], seconds: float = 10.0) -> bytes:
    """A short part of `data` for which `fails` still holds."""
    until = time.monotonic() + seconds
    step = max(1, len(data) // 2)
    while step and time.monotonic() < until:
        at, shorter = 0, False
        while at < len(data) and time.monotonic() < until:
            tried = data[:at] + data[at + step :]
            if fails(tried):
                data, shorter = tried, True
            else:
                at += step
        step = step if shorter and step > 1 else step // 2
    return data


def batches(first: int, count: int, size: int) -> Iterator[range]:
    """`count` numbers from `first` on, `size` at a time."""
    for begin in range(first, first + count, size):
        yield range(begin, min(begin + size, first + count))
