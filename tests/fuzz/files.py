"""The store's files as a door: many queues with a damaged file each, and one start on all of them.

A start has to succeed; no queue may give a byte that was not published to it, nor a message twice;
queues whose files are sound have to be whole. The kinds of files that all queues share have a start
each: `tests.crash.fuzz` damages them.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from pathlib import Path

from tests.crash.explore import scratch
from tests.crash.fuzz import fuzz as fuzz_shared
from tests.crash.inside import Inside, publish
from tests.crash.profiles import shrunk
from tests.fuzz.found import Count, chance_of
from tests.fuzz.mutations import mutate

DOOR = "store"
QUEUES = 96
MESSAGES = 6
PERSISTENT = b"\x10\x00\x02"
SHARED_PER = 20
"""Mutants of queues' own files for each start on a damaged file that is shared."""


def _fill(directory: Path) -> dict[str, list[bytes]]:
    """A data directory with queues of both stores; their messages by name."""
    inside = Inside(directory).start()
    bodies: dict[str, list[bytes]] = {}
    for number in range(QUEUES):
        name = f"queue-{number}"
        arguments = {"x-max-priority": 3} if number % 4 == 3 else None
        inside.vhost.declare_queue(name, durable=True, arguments=arguments)
        bodies[name] = [b"<%d/%d>" % (number, at) + bytes([at]) * 40 for at in range(MESSAGES)]
        for body in bodies[name]:
            publish(inside.vhost, "", name, PERSISTENT, body)
    inside.sync()
    inside.kill()
    return bodies


def _damage(path: Path, chance: random.Random, others: list[bytes]) -> int:
    """Mutates a file, or puts another one's content in its place; the octets it has then."""
    data = mutate(chance, path.read_bytes()) if chance.random() < 0.9 else chance.choice(others)
    path.write_bytes(data)
    return len(data)


def _start(target: Path, bodies: dict[str, list[bytes]], damaged: set[str]) -> list[str]:
    """What a start got wrong."""
    try:
        inside = Inside(target).start()
    except Exception as error:
        return [f"no start: {type(error).__name__}: {error}"]
    wrong = []
    for name, published in bodies.items():
        if name not in inside.vhost.queues:
            wrong.append(f"{name} is not there")
            continue
        given = [taker.body for taker in inside.drain(name)]
        if name in damaged:
            strange = [body for body in given if body not in published]
            if strange:
                wrong.append(f"{name} gives {strange[0]!r}")
            if len(set(given)) < len(given):
                wrong.append(f"{name} gives a message twice")
        elif given != published:
            wrong.append(f"{name} is sound and gives {len(given)} of {len(published)} messages")
    inside.kill()
    return wrong


def fuzz(seed: int, first: int, number_of: int) -> Count:
    """Mutants `first` to `first + number_of`, each a damaged file."""
    count = Count()
    begun = time.monotonic()
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    base = scratch()
    try:
        with shrunk():
            bodies = _fill(base / "clean")
            _fuzz(base, bodies, seed, first, number_of, count)
        shared = fuzz_shared(seed + first, max(2, number_of // SHARED_PER // 10))
        count.mutants += shared.rounds
        count.findings += shared.violations
    finally:
        log.setLevel(level)
        shutil.rmtree(base, ignore_errors=True)
    count.seconds = time.monotonic() - begun
    return count


def _fuzz(
    base: Path, bodies: dict[str, list[bytes]], seed: int, first: int, number_of: int, count: Count
) -> None:
    files: dict[str, list[Path]] = {}
    clean = base / "clean"
    for path in sorted(clean.glob("vhosts/*/queues/*/*")):
        if path.is_file():
            files.setdefault(path.parent.name, []).append(path)
    contents = [path.read_bytes() for paths in files.values() for path in paths]
    names = _names(files, bodies)
    number, end = first, first + number_of
    while number < end and len(count.findings) < 20:
        target = base / "damaged"
        shutil.copytree(clean, target)
        damaged = set()
        begin = number
        for directory in sorted(files):
            # Every third queue stays sound.
            if number % 3 and number < end:
                chance = chance_of(seed, DOOR, number)
                path = chance.choice(files[directory])
                count.octets += _damage(target / path.relative_to(clean), chance, contents)
                damaged.add(names[directory])
                count.mutants += 1
            number += 1
        for wrong in _start(target, bodies, damaged)[:3]:
            count.findings.append(f"seed {seed}, files {begin} to {number}: {wrong}")
        shutil.rmtree(target)


def _names(files: dict[str, list[Path]], bodies: dict[str, list[bytes]]) -> dict[str, str]:
    """Directory to name of a queue, by the bodies in its files."""
    found = {}
    for directory, paths in files.items():
        data = b"".join(path.read_bytes() for path in paths)
        found[directory] = next(name for name, given in bodies.items() if given[0] in data)
    return found
