"""Looks for one planted fault, in a process of its own: what it finds is printed as JSON.

`python -m tests.crash.planted_run FAULT`; see `tests.crash.planted_build`.
"""

from __future__ import annotations

import errno
import json
import sys

from tests.crash import planted_build

SEEDS = (4, 3, 10, 6, 1, 2, 5, 7)


def found(fault: str) -> list[str]:
    """What those who look for faults say; seed after seed, up to the first that shows it."""
    from tests.crash.fuzz import fuzz
    from tests.store import recorder

    word = planted_build.FAULTS[fault]
    if fault == "ignore a full disk":
        # Which write it is depends on the threads: a message is lost, another one is given in its
        # place, or a start tells of damage.
        recorder.fail("write", 12, errno.ENOSPC)
        return seen_by_states(3)
    for seed in SEEDS:
        violations = fuzz(seed, 40).violations if fault == "no check" else seen_by_states(seed)
        telling = [each for each in violations if word in each]
        if telling:
            return telling
    return []


def seen_by_states(seed: int, wanted: int = 60) -> list[str]:
    """What a short exploration finds; an order that is wrong at once ends it."""
    from tests.crash.explore import explore

    try:
        return explore(seed, steps=60, wanted=wanted, only=("queues",)).violations
    except AssertionError as error:
        return [str(error)]


if __name__ == "__main__":
    planted_build.use(sys.argv[1])
    print(json.dumps(found(sys.argv[1])))
