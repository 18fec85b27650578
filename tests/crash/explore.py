"""Recovers a broker from the states of a recording and sets it beside what was promised."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from broker.store.directory import last_mount
from tests.crash.inside import USUAL, Inside
from tests.crash.profiles import Profile, profile_of, shrunk
from tests.crash.promises import Found
from tests.crash.states import CrashDisk, State, lay_out
from tests.crash.steps import STEPS, steps_of
from tests.crash.stream_script import NAME, rows_of
from tests.crash.workload import Workload
from tests.inner import body_references

TWICE_EVERY = 5
"""Of so many states one is recovered twice."""

STATES_OF_A_STEP = 2
"""So many states at least are recovered from behind each step that a workload comes by."""

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
    steps: Counter[str] = field(default_factory=Counter)
    """States right behind each of `tests.crash.steps`."""

    def add(self, other: Explored) -> None:
        """Takes another run's counts."""
        self.states += other.states
        self.moments += other.moments
        self.faulty += other.faulty
        self.seconds += other.seconds
        self.violations = (self.violations + other.violations)[:20]
        self.steps += other.steps

    def __str__(self) -> str:
        return (
            f"{self.states:,} states at {self.moments:,} moments, {len(self.steps)} of "
            f"{len(STEPS)} steps, {self.faulty} with violations, {self.seconds:.0f} s"
        )

    @property
    def missed(self) -> list[str]:
        """Steps that no state follows."""
        return sorted(STEPS - self.steps.keys())


def scratch() -> Path:
    """A new directory, in memory where that can be had: durability is the recording's."""
    return Path(tempfile.mkdtemp(prefix="leveret-states-", dir=MEMORY if MEMORY.is_dir() else None))


@contextlib.contextmanager
def mounted(name: str) -> Iterator[None]:
    """A broker in here finds its directory on this mount; empty: on that which it really is on."""
    real = last_mount.this_mount
    if name:
        last_mount.this_mount = lambda _directory: name
    try:
        yield
    finally:
        last_mount.this_mount = real


def look(directory: Path, profile: Profile = USUAL) -> Found:
    """Starts a broker on a state, takes all it has, and ends it without a clean stop."""
    inside = Inside(directory, profile=profile).start()
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
        if NAME in inside.vhost.queues:
            found.stream = rows_of(inside)
            found.places = inside.vhost.queues[NAME].store.offsets.stored()
        found.dangling = inside.vhost.bodies.figures()["dangling"]
        found.miscounted = miscounted(inside)
        found.quarantined = inside.persister.quarantine.count
        assert inside.failed is None, inside.failed
        return found
    finally:
        inside.kill()


def miscounted(inside: Inside) -> str:
    """What is wrong with the references that the index of shared bodies counts, when nothing waits
    to be written: they are just those of the queues' records."""
    inside.tick()
    queues = inside.vhost.queues.values()
    stores = [queue.store for queue in queues if queue.type != "stream" and queue.store]
    had = sum(store.count_references() for store in stores)
    counted = sum(body_references(inside.vhost.bodies).values())
    if had == counted:
        return ""
    return f"the queues refer {had} times to shared bodies, the index counts {counted}"


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


def explore(
    seed: int, steps: int, wanted: int | None = None, only: tuple[str, ...] = ()
) -> Explored:
    """Runs one workload, of the kind that its seed has among all or `only` these, and recovers from
    its states: all that differ, or about `wanted` of them, spread evenly, and some behind each kind
    of step."""
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # states with damage are told of, each
    began = time.monotonic()
    base = scratch()
    result = Explored()
    profile = profile_of(seed, only)
    try:
        with shrunk():
            workload = Workload(base / "data", seed, steps, profile)
            blame = list(reused(workload))
            if blame:
                result.faulty += 1
                result.violations += [f"seed {seed}: {each}" for each in blame[:3]]
            _explore(workload, seed, wanted, base / "state", result)
    finally:
        log.setLevel(level)
        shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


def _explore(
    workload: Workload, seed: int, wanted: int | None, target: Path, result: Explored
) -> None:
    count = sum(1 for _ in all_states(workload, random.Random(seed)))
    stride = max(1, count // wanted) if wanted else 1
    names = [tuple(steps_of(event)) for event in workload.events]
    moments: set[int] = set()
    seen: set[int] = set()
    # A stride that shares no factor with the number of states of a usual moment.
    for number, (moment, label, state) in enumerate(all_states(workload, random.Random(seed))):
        steps = names[moment - 1]
        if number % stride and all(result.steps[step] >= STATES_OF_A_STEP for step in steps):
            continue
        fingerprint = hash((moment, tuple(sorted(state.items(), key=lambda item: item[0]))))
        if fingerprint in seen:
            continue
        seen.add(fingerprint)
        moments.add(moment)
        result.states += 1
        result.steps.update(steps)
        twice = result.states % TWICE_EVERY == 0
        wrong = _judge(workload, target, moment, label, state, twice)
        if wrong:
            result.faulty += 1
            event = workload.events[moment - 1]
            where = f"seed {seed} ({workload.profile.name}), moment {moment} "
            where += f"({event[0]} {event[1]}), {label}"
            if len(result.violations) < 20:
                result.violations.append(f"{where}: " + "; ".join(wrong[:3]))
    result.moments = len(moments)


def _judge(
    workload: Workload, target: Path, moment: int, label: str, state: State, twice: bool
) -> list[str]:
    lay_out({**state, **_index(workload, moment, state)}, workload.root, target)
    killed = label == "all"
    try:
        with mounted("" if killed else "after the power cut"):
            found = look(target, workload.profile)
            wrong = workload.promises.violations(found, moment, killed)
            if twice:
                wrong += _differences(found, look(target, workload.profile))
        return wrong
    except Exception as error:
        return [f"no start: {type(error).__name__}: {error}"]
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _index(workload: Workload, moment: int, state: State) -> State:
    """What LevelDB left, below a directory that the state has."""
    files = workload.index_at(moment)
    directories = {path.rpartition("/")[0] for path in files}
    if not all(path.rpartition("/")[0] in state for path in directories):
        return {}
    found: State = dict.fromkeys(directories)
    return {**found, **files}


def _differences(found: Found, again: Found) -> Iterator[str]:
    """What a second recovery got wrong. The first one has delivered all that it found."""
    first = {name: [body for body, _ in rows] for name, rows in found.queues.items()}
    second = {name: [body for body, _ in rows] for name, rows in again.queues.items()}
    if first != second and "late" not in _different(first, second):
        yield f"the second recovery differs in {_different(first, second)}"
    if found.stream != again.stream or found.places != again.places:
        yield "the second recovery differs in the stream"
    for name, rows in again.queues.items():
        known = set(first.get(name, ()))
        unmarked = [body for body, redelivered in rows if not redelivered and body in known]
        if unmarked:
            yield f"{len(unmarked)} of {name} were delivered before and are not marked so"


def _different(first: dict[str, list[bytes]], second: dict[str, list[bytes]]) -> list[str]:
    return [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]


def explore_many(
    states: int,
    seed: int,
    tell: Callable[[str], None],
    *,
    steps: int = 60,
    at_once: int = 800,
    only: tuple[str, ...] = (),
) -> Explored:
    """Explores workload after workload until so many states were recovered; `tell` hears of it."""
    total = Explored()
    first = seed
    while total.states < states:
        explored = explore(seed, steps, min(at_once, states - total.states), only)
        total.add(explored)
        seed += 1
        for violation in explored.violations:
            tell(f"  {violation}")
        if explored.violations or (seed - first) % 10 == 0:
            tell(f"{seed - first} workloads: {total}")
    return total
