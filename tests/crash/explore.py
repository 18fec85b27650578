"""Recovers a broker from the states of a recording and sets it beside what was promised."""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.inside import Inside
from tests.crash.promises import Found
from tests.crash.states import CrashDisk, State, lay_out
from tests.crash.workload import Workload

TWICE_EVERY = 5
"""Of so many states one is recovered twice."""

LAST = "graves"
STRAYS_STAY = 5
"""Ticks after which a file that is to go has gone."""
MEMORY = Path("/dev/shm")
SEGMENT_NAME = re.compile(r"(msgs|acks|meta)\.(\d{10})$")


@dataclass
class Explored:
    """What came of it. `violations` holds the first few, with the state that they were seen in."""

    states: int = 0
    moments: int = 0
    faulty: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Explored) -> None:
        """Takes another run's counts."""
        self.states += other.states
        self.moments += other.moments
        self.faulty += other.faulty
        self.seconds += other.seconds
        self.violations = (self.violations + other.violations)[:20]

    def __str__(self) -> str:
        return (
            f"{self.states:,} states at {self.moments:,} moments, {self.faulty} with violations, "
            f"{self.seconds:.0f} s"
        )


def scratch() -> Path:
    """A new directory, in memory where that can be had: durability is the recording's."""
    return Path(tempfile.mkdtemp(prefix="leveret-states-", dir=MEMORY if MEMORY.is_dir() else None))


def look(directory: Path) -> Found:
    """Starts a broker on a state, takes all it has, and ends it without a clean stop."""
    inside = Inside(directory).start()
    try:
        found = Found({}, list(inside.problems))
        # What was held back for 1 ms is due.
        inside.pump(lambda: inside.ring() is None and not inside.held)
        # What is too much in a queue goes to another one, which is read last.
        for queue in inside.vhost.queues.values():
            queue.wake()
        inside.sync()
        for _ in range(STRAYS_STAY):
            inside.tick()
            found.strays = list(strays(directory))
            if not found.strays:
                break
        for name in sorted(inside.vhost.queues, key=lambda name: name == LAST):
            found.queues[name] = [
                (taker.body or b"", taker.redelivered) for taker in inside.drain(name)
            ]
        found.quarantined = inside.persister.quarantine.count
        assert inside.failed is None, inside.failed
        return found
    finally:
        inside.kill()


def strays(directory: Path) -> Iterator[str]:
    """Files of segments that are not there, and temporary files."""
    for path, _, names in os.walk(directory / "vhosts"):
        for name in names:
            match = SEGMENT_NAME.match(name)
            if name.endswith(".tmp") or (
                match and match[1] != "msgs" and f"msgs.{match[2]}" not in names
            ):
                yield f"{os.path.relpath(path, directory)}/{name}"


def reused(workload: Workload) -> Iterator[str]:
    """Segments whose number was given twice in one run: what was deleted could be met again. A
    start may begin anew: it syncs the whole file system before it writes."""
    begun: set[str] = set()
    for kind, path, offset, _, error in workload.events:
        if path and path.endswith("/boots.tmp"):
            begun.clear()
        elif kind == "write" and offset == 0 and not error and path and "/msgs." in path:
            if path in begun:
                yield f"segment number given twice: {path}"
            begun.add(path)


def all_states(workload: Workload, chance: random.Random) -> Iterator[tuple[int, str, State]]:
    """Every (moment, what makes the state, state) behind the preparations."""
    crash_disk = CrashDisk(workload.root)
    for moment, (event, data) in enumerate(zip(workload.events, workload.data, strict=True), 1):
        crash_disk.take(event, data)
        if moment >= workload.began and event[0] != "read":
            for label, state in crash_disk.states(chance):
                yield moment, label, state


def explore(seed: int, steps: int, wanted: int | None = None) -> Explored:
    """Runs one workload and recovers from its states: all that differ, or about `wanted` of them,
    spread evenly."""
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # states with damage are told of, each
    began = time.monotonic()
    base = scratch()
    result = Explored()
    try:
        workload = Workload(base / "data", seed, steps)
        blame = list(reused(workload))
        if blame:
            result.faulty += 1
            result.violations += [f"seed {seed}: {each}" for each in blame[:3]]
        count = sum(1 for _ in all_states(workload, random.Random(seed)))
        stride = max(1, count // wanted) if wanted else 1
        moments: set[int] = set()
        seen: set[int] = set()
        # A stride that shares no factor with the number of states of a usual moment.
        for number, (moment, label, state) in enumerate(all_states(workload, random.Random(seed))):
            if number % stride:
                continue
            fingerprint = hash((moment, tuple(sorted(state.items(), key=lambda item: item[0]))))
            if fingerprint in seen:
                continue
            seen.add(fingerprint)
            moments.add(moment)
            result.states += 1
            twice = result.states % TWICE_EVERY == 0
            wrong = _judge(workload, base / "state", moment, label, state, twice)
            if wrong:
                result.faulty += 1
                event = workload.events[moment - 1]
                where = f"seed {seed}, moment {moment} ({event[0]} {event[1]}), {label}"
                if len(result.violations) < 20:
                    result.violations.append(f"{where}: " + "; ".join(wrong[:3]))
        result.moments = len(moments)
    finally:
        log.setLevel(level)
        shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


def _judge(
    workload: Workload, target: Path, moment: int, label: str, state: State, twice: bool
) -> list[str]:
    lay_out(state, workload.root, target)
    try:
        found = look(target)
        wrong = workload.promises.violations(found, moment, killed=label == "all")
        if twice:
            again = look(target)
            first = {name: [body for body, _ in rows] for name, rows in found.queues.items()}
            second = {name: [body for body, _ in rows] for name, rows in again.queues.items()}
            if first != second and "late" not in _different(first, second):
                wrong.append(f"the second recovery differs in {_different(first, second)}")
        return wrong
    except Exception as error:
        return [f"no start: {type(error).__name__}: {error}"]
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _different(first: dict[str, list[bytes]], second: dict[str, list[bytes]]) -> list[str]:
    return [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]


def explore_many(
    states: int, seed: int, tell: Callable[[str], None], *, steps: int = 60, at_once: int = 2000
) -> Explored:
    """Explores workload after workload until so many states were recovered; `tell` hears of it."""
    total = Explored()
    first = seed
    while total.states < states:
        explored = explore(seed, steps, min(at_once, states - total.states))
        total.add(explored)
        seed += 1
        for violation in explored.violations:
            tell(f"  {violation}")
        if explored.violations or (seed - first) % 10 == 0:
            tell(f"{seed - first} workloads: {total}")
    return total
