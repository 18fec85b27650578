"""Damages files of the store and starts on them: `python -m tests.crash.fuzz --rounds 500`.

A tail is cut at any byte, or filled with zeros or noise; bits are flipped; a stretch is
overwritten, a block zeroed. Each start has to succeed, to say what is wrong where messages are
missing, and never to serve a byte that was not published; what is in undamaged files has to be
there. The files are those of queues, streams, shared bodies with their index, delayed messages with
theirs, and definitions; of every second workload as a clean stop leaves them, else as a kill does.
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

from broker.fields import properties
from broker.store.files import record_scan
from tests.crash.explore import look, scratch
from tests.crash.inside import Inside, publish
from tests.crash.profiles import EMBED_BELOW, Profile, profile_of, shrunk
from tests.crash.promises import Copy, Found
from tests.crash.small import cut_everywhere
from tests.crash.stream_script import NAME
from tests.crash.workload import Workload

KINDS = ("cut", "zeros", "noise", "flip", "flip", "overwrite", "block", "gone")
BLOCK = 512
LATER = properties.encode({"delivery_mode": 2, "headers": {"x-delay": 1000}})
KEPT = ("segment", "journal", "stream", "bodies", "places")
"""Files that nothing else could tell the content of: that one is wholly gone is no damage that a
start could know of."""
CACHES = ("contents", "summary", "timing index", "marker", "filter", "index")
"""Files whose content can be found out again: their damage costs no message."""


@dataclass
class Fuzzed:
    """What came of it. `by_kind`: starts per kind of damaged file."""

    rounds: int = 0
    seconds: float = 0.0
    by_kind: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def add(self, other: Fuzzed) -> None:
        """Takes another run's counts."""
        self.rounds += other.rounds
        self.seconds += other.seconds
        for kind, count in other.by_kind.items():
            self.by_kind[kind] = self.by_kind.get(kind, 0) + count
        self.violations += other.violations

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
    elif kind == "block":
        at = at // BLOCK * BLOCK
        data[at : at + BLOCK] = bytes(len(data[at : at + BLOCK]))
    else:
        length = chance.choice((8, 512, 4096))
        data[at : at + length] = chance.randbytes(len(data[at : at + length]))
    path.write_bytes(data)
    return f"{kind} at {at} of {len(data)}"


def file_kind(path: Path, streams: frozenset[str]) -> str:
    """The kind of a store's file, by its name and directory; `streams` are the names of those of
    streams."""
    if path.parent.parent.name == "schedule":
        return "timing index"
    if path.parent.name == "index":
        return "index"
    name = path.name.partition(".")[0]
    if path.parent.name == "bodies":
        names = {"clean": "marker", "bloom": "filter", "index": "index"}  # and index.ram, .sums
        return names.get(name) or {".bdy": "bodies", ".toc": "contents"}[path.suffix]
    kinds = {"msgs": "segment", "definitions": "journal", "meta": "summary", "offsets": "places"}
    if path.parent.name in streams and name == "msgs":
        return "stream"
    return kinds.get(name, name)


def lie_in_zeros(bodies: set[bytes], path: Path, damaged: bytes) -> bool:
    """Whether the records of all these bodies in a sound segment lie where the damaged one has
    nothing but zeros up to its end."""
    sound = path.read_bytes()
    zeros_from = len(damaged.rstrip(b"\0"))
    if not zeros_from:
        return True  # also of those whose bodies are shared, and in another file
    at = record_scan.HEADER
    while at < len(sound):
        if at >= zeros_from:
            return all(body in sound[at:] for body in bodies)
        at += 4 + int.from_bytes(sound[at : at + 4], "little")
    return False


def judge(
    workload: Workload,
    before: Found,
    after: Found,
    path: Path,
    kind: str,
    how: str,
    damaged: bytes,
) -> list[str]:
    """What a start on a damaged file got wrong. `path` is the sound file, `damaged` what was in the
    other before the start."""
    wrong = []
    known = workload.promises.copies
    for queue, messages in after.queues.items():
        wrong += [
            f"altered or unknown in {queue}: {body[:30]!r}"
            for body, _ in messages
            if body not in known
        ]
    there = {body for messages in after.queues.values() for body, _ in messages}
    lost = {
        queue: missing
        for queue, messages in before.queues.items()
        if (missing := {body for body, _ in messages} - there)
    }
    if set(after.stream) - set(before.stream):
        wrong.append("the stream gives what it did not have")
    if len(after.stream) < len(before.stream):
        lost[NAME] = {body for _, body in set(before.stream) - set(after.stream)}
    told = bool(after.problems or after.quarantined or after.dangling)
    if lost and kind in CACHES:
        which = {queue: sorted(body[:14] for body in rows) for queue, rows in lost.items()}
        counts = {queue: len(rows) for queue, rows in after.queues.items()}
        wrong.append(f"lost messages by a damage to {kind}: {which}; there are {counts}")
    if lost and kind == "bodies":
        small = [queue for queue, rows in lost.items() if min(map(len, rows)) < EMBED_BELOW]
        if small:
            wrong.append(f"{small} lost embedded bodies by a damage to shared ones")
    elif lost and kind != "journal":
        hurt = path.parent.name
        # Messages that an exchange holds back lie in a directory of its own.
        concerned = {workload.directories.get(queue, "") for queue in lost}
        if "late" in lost and hurt not in workload.directories.values():
            concerned.add(hurt)
        if hurt not in concerned:
            wrong.append(f"{sorted(lost)} lost messages by a damage in {hurt}")
    # A file that ends with a whole record looks like one that was written so far, and zeros behind
    # one look like space ahead.
    if (
        lost
        and not told
        and how != "cut"
        and not (kind == "segment" and lie_in_zeros(set().union(*lost.values()), path, damaged))
    ):
        wrong.append(f"{sorted(lost)} lost messages and nothing was said")
    if kind == "places":
        if after.places != before.places and not told and how != "cut":
            wrong.append(f"places were {before.places}, are {after.places}; nothing was said")
        kept = {row.offset for rows in workload.promises.stream_places() for row in rows}
        wrong += [f"place {at} was never kept" for at in after.places.values() if at not in kept]
    elif kind != "journal" and kind != "stream" and after.places != before.places:
        wrong.append(f"places were {before.places}, are {after.places}")
    return wrong


def fuzz(seed: int, rounds: int, only: tuple[str, ...] = ()) -> Fuzzed:
    """Damages one file of one workload's directory at a time, `rounds` times."""
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    began = time.monotonic()
    base = scratch()
    result = Fuzzed()
    try:
        with shrunk():
            _fuzz(seed, rounds, base, profile_of(seed, only), result)
    finally:
        log.setLevel(level)
        shutil.rmtree(base, ignore_errors=True)
    result.seconds = time.monotonic() - began
    return result


def _fuzz(seed: int, rounds: int, base: Path, profile: Profile, result: Fuzzed) -> None:
    chance = random.Random(seed)
    workload = Workload(base / "data", seed, 60, profile)
    clean = base / "clean"
    shutil.copytree(base / "data", clean)
    inside = Inside(clean, profile=profile).start()
    for _ in range(7):
        # Not due before this broker ends: they stay in the timing index.
        body = workload.next_body(20)
        workload.promises.add(Copy(workload.numbers, body, [(0, "late")], is_held=True))
        publish(inside.vhost, "later", "", LATER, body)
    inside.tick()
    inside.stop() if seed % 2 else inside.kill()
    shutil.copytree(clean, base / "look")
    before = look(base / "look", profile)
    streams = frozenset({workload.directories[NAME]})
    kinds: dict[str, list[Path]] = {}
    for path in sorted(path for path in (clean / "vhosts").rglob("*") if path.is_file()):
        if path.name != "LOCK":
            kinds.setdefault(file_kind(path, streams), []).append(path)
    for number in range(rounds):
        kind = sorted(kinds)[number % len(kinds)]
        path = chance.choice(kinds[kind])
        target = base / "damaged"
        shutil.copytree(clean, target)
        how = chance.choice(KINDS if kind not in KEPT else KINDS[:-1])
        done = damage(target / path.relative_to(clean), chance, how)
        result.rounds += 1
        result.by_kind[kind] = result.by_kind.get(kind, 0) + 1
        wrong = _start(workload, before, target, clean, path, kind, how)
        if wrong and len(result.violations) < 20:
            name = path.relative_to(clean)
            result.violations.append(f"seed {seed}, {name}, {done}: " + "; ".join(wrong[:3]))
        shutil.rmtree(target)


def _start(
    workload: Workload, before: Found, target: Path, clean: Path, path: Path, kind: str, how: str
) -> list[str]:
    here = target / path.relative_to(clean)
    damaged = here.read_bytes() if here.exists() else b""
    try:
        after = look(target, workload.profile)
        return judge(workload, before, after, path, kind, how, damaged)
    except ValueError as error:
        # Of a journal without its beginning and without one sound entry nothing is left, and a body
        # file of another version is none of ours.
        texts = {"journal": "is no journal of this version", "bodies": "has format version"}
        refused = kind in texts and texts[kind] in str(error)
        return [] if refused else [f"no start: {error}"]
    except Exception as error:
        return [f"no start: {type(error).__name__}: {error}"]


def _cuts() -> bool:
    """Small files, cut at every byte; whether all is well."""
    began = time.monotonic()
    starts, wrong = 0, []
    for backend in ("ram", "leveldb"):
        for clean in (True, False):
            base = scratch()
            with shrunk():
                count, found = cut_everywhere(base, backend, clean)
            shutil.rmtree(base)
            starts += count
            wrong += found
    for each in wrong[:20]:
        print(f"  {each}", flush=True)
    seconds = time.monotonic() - began
    print(f"files cut at every byte: {starts} starts, {len(wrong)} violations, {seconds:.0f} s")
    return not wrong


def main() -> int:
    """Exit status 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fuzz")
    parser.add_argument("--rounds", type=int, default=2000, help="starts on a damaged file (2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first workload (1)")
    parser.add_argument("--no-cuts", action="store_true", help="leave out the cuts at every byte")
    options = parser.parse_args()
    if not options.no_cuts and not _cuts():
        return 1
    left, seed = options.rounds, options.seed
    total = Fuzzed()
    while left > 0:
        result = fuzz(seed, min(left, 100))
        total.add(result)
        for each in result.violations:
            print(f"  {each}", flush=True)
        left -= result.rounds
        seed += 1
        if seed % 10 == 0:
            print(f"{seed - options.seed} workloads: {total}", flush=True)
    print(f"seed {options.seed}: {total}", flush=True)
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
