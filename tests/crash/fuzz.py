"""Damages files of the store and starts on them: `python -m tests.crash.fuzz --rounds 500`.

A tail is cut at any byte, or filled with zeros or noise; bits are flipped; a stretch is
overwritten. Each start has to succeed, to say what is wrong where messages are missing, and never
to serve a byte that was not published; what is in undamaged files has to be there.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.explore import look, scratch
from tests.crash.inside import Inside
from tests.crash.promises import Found
from tests.crash.workload import Workload

KINDS = ("cut", "zeros", "noise", "flip", "flip", "overwrite", "gone")


@dataclass
class Fuzzed:
    """What came of it. `by_kind`: starts per kind of damaged file."""

    rounds: int = 0
    seconds: float = 0.0
    by_kind: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.by_kind.items()))
        return (
            f"{self.rounds} starts on damaged files ({kinds}): {len(self.violations)} violations, "
            f"{self.seconds:.0f} s"
        )


def damage(path: Path, chance: random.Random, kind: str) -> str:
    """Damages a file; what was done."""
    if kind == "gone":
        path.unlink()
        return "removed"
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data) + 1)
    if kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at:] = bytes(len(data) - at)
    elif kind == "noise":
        data[at:] = chance.randbytes(len(data) - at)
    elif kind == "flip":
        for _ in range(chance.choice((1, 1, 1, 8))):
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        length = chance.choice((8, 512, 4096))
        data[at : at + length] = chance.randbytes(len(data[at : at + length]))
    path.write_bytes(data)
    return f"{kind} at {at} of {len(data)}"


def file_kind(path: Path) -> str:
    """The kind of a store's file, by its name and directory."""
    if path.parent.parent.name == "schedule":
        return "timing index"
    name = path.name.partition(".")[0]
    return {"msgs": "segment", "definitions": "journal"}.get(name, name)


def judge(workload: Workload, before: Found, after: Found, hurt: str, how: str) -> list[str]:
    """What a start on a damaged file got wrong. `hurt`: the directory of the queue that the file
    is of, or empty for the journal, whose damage may hide any queue."""
    wrong = []
    known = workload.promises.copies
    for queue, messages in after.queues.items():
        wrong += [
            f"altered or unknown in {queue}: {body[:30]!r}"
            for body, _ in messages
            if body not in known
        ]
    there = {body for messages in after.queues.values() for body, _ in messages}
    lost = [
        queue
        for queue, messages in before.queues.items()
        if {body for body, _ in messages} - there
    ]
    # Messages that an exchange holds back lie in a directory of its own.
    concerned = {workload.directories.get(queue, "") for queue in lost}
    if "late" in lost and hurt not in workload.directories.values():
        concerned.add(hurt)
    if lost and hurt and hurt not in concerned:
        wrong.append(f"{lost} lost messages by a damage in {hurt}")
    # A file that ends with a whole record looks like one that was written so far.
    if lost and not after.problems and not after.quarantined and how != "cut":
        wrong.append(f"{lost} lost messages and nothing was said")
    return wrong


def fuzz(seed: int, rounds: int) -> Fuzzed:
    """Damages one file of one workload's directory at a time, `rounds` times."""
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    began = time.monotonic()
    chance = random.Random(seed)
    base = scratch()
    result = Fuzzed()
    try:
        workload = Workload(base / "data", seed, 60)
        shutil.copytree(base / "data", base / "clean")
        inside = Inside(base / "clean").start()
        inside.tick()
        inside.kill()
        shutil.copytree(base / "clean", base / "look")
        before = look(base / "look")
        files = sorted(path for path in (base / "clean/vhosts").rglob("*") if path.is_file())
        kinds: dict[str, list[Path]] = {}
        for path in files:
            kinds.setdefault(file_kind(path), []).append(path)
        for number in range(rounds):
            kind = sorted(kinds)[number % len(kinds)]
            path = chance.choice(kinds[kind])
            target = base / "damaged"
            shutil.copytree(base / "clean", target)
            # A file that is wholly gone is no damage that a start could tell.
            how = chance.choice(KINDS if kind not in ("segment", "journal") else KINDS[:-1])
            done = damage(target / path.relative_to(base / "clean"), chance, how)
            result.rounds += 1
            result.by_kind[kind] = result.by_kind.get(kind, 0) + 1
            hurt = "" if kind == "journal" else path.parent.name
            try:
                wrong = judge(workload, before, look(target), hurt, how)
            except ValueError as error:
                # Of a journal without its beginning and without one sound entry nothing is left.
                refused = kind == "journal" and "is no journal of this version" in str(error)
                wrong = [] if refused else [f"no start: {error}"]
            except Exception as error:
                wrong = [f"no start: {type(error).__name__}: {error}"]
            if wrong and len(result.violations) < 20:
                name = path.relative_to(base / "clean")
                result.violations.append(f"seed {seed}, {name}, {done}: " + "; ".join(wrong[:3]))
            shutil.rmtree(target)
    finally:
        log.setLevel(level)
        shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


def main() -> int:
    """Exit status 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fuzz")
    parser.add_argument("--rounds", type=int, default=2000, help="starts on a damaged file (2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first workload (1)")
    options = parser.parse_args()
    left, seed = options.rounds, options.seed
    failed = False
    while left > 0:
        result = fuzz(seed, min(left, 100))
        print(f"seed {seed}: {result}", flush=True)
        for each in result.violations:
            print(f"  {each}")
        failed = failed or bool(result.violations)
        left -= result.rounds
        seed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
