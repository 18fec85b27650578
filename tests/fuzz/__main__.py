"""`python -m tests.fuzz --mutants 10000000`: mutated input through every door of a broker.

Doors whose first room takes bytes are called in processes of their own, beside an appliance whose
sockets get the rest. Each mutant is made from the seed, its door and its number: `--door` and
`--first` make it again. Status 1 if something was found; the data directory is then kept, and what
a parser could not take is saved below tests/fuzz/corpus, which every later run begins with.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from tests.appliance import Appliance
from tests.fuzz import asking, parsers
from tests.fuzz.found import GROWTH_MAX, TURN_MAX_S, Count, FoundError, batches
from tests.fuzz.processes import MEMORY, in_process
from tests.fuzz.runs import Run, memory, start, tidy
from tests.turns import TurnMeter

SHARES = {
    "fields": 2_400_000,
    "properties": 2_000_000,
    "proxy-header": 2_000_000,
    "control-frame": 1_000_000,
    "websocket-frames": 500_000,
    "definitions-text": 500_000,
    "amqp-inside": 500_000,
    "store": 100_000,
    "tcp": 100_000,
    "tls": 100_000,
    "proxy": 100_000,
    "websocket": 100_000,
    "web port": 100_000,
    "control": 200_000,
    "definitions": 100_000,
    "web": 100_000,
    "metrics": 100_000,
}
"""Mutants of each door in the long form: ten million together."""
PIECE = 800
"""Mutants between two looks at the turns of the loops."""
TRIES = 3
"""Times that a piece with a turn above 10 ms is sent. Its shortest longest turn counts: what takes
long by our code does so each time, while the processor time of a thread has interrupts of others in
it, and what the hypervisor took (1 ms of arithmetic took up to 34 ms of it on an idle machine)."""
IN_PROCESSES = (*parsers.PARSERS, "amqp-inside", "store")
ASKED = ("control", "definitions", "web", "metrics")
LOOPS = ("broker", "web")


class Sockets:
    """An appliance and the doors that need one."""

    def __init__(self, base: Path, seed: int) -> None:
        self.seed = seed
        self.appliance = Appliance("serve", base)
        self.meter = TurnMeter(self.appliance)
        self.run = Run(self.appliance, start(self.appliance, base), seed)
        # What is loaded or compiled at a first request is no mutant's doing.
        for name in ("web", "metrics"):
            asking.fuzz(asking.Pages(self.appliance, name), seed, 0, 400, self.run.look)

    def go(self, door: str, first: int, number_of: int, until: float) -> Count:
        """Mutants through one door, and what the processes are like afterwards."""
        tenth = max(number_of // 10, 100)
        count = self._send_all(door, first, min(tenth, number_of), until)
        if not count.findings:
            tidy(self.appliance)
            before = {name: memory(self.appliance.pids[name]) for name in LOOPS}
            if number_of > tenth:
                count.add(self._send_all(door, first + tenth, number_of - tenth, until))
                tidy(self.appliance)
            for name, size in before.items():
                grown = memory(self.appliance.pids[name]) - size
                if grown > GROWTH_MAX:
                    count.findings.append(f"{name} grew by {grown >> 20} MiB")
        return count

    def _send_all(self, door: str, first: int, number_of: int, until: float) -> Count:
        count = Count()
        for numbers in batches(first, number_of, PIECE):
            if time.monotonic() > until:
                break
            count.add(self._send_piece(door, numbers, until))
            if count.findings:
                break
        return count

    def _send_piece(self, door: str, numbers: range, until: float) -> Count:
        """Sends a piece, and again while a turn was too long and there are tries."""
        count, slow, shortest = Count(), [], math.inf
        for number in range(TRIES):
            self.meter.forget()
            count.add(self._send(door, numbers.start, len(numbers), until if not number else None))
            turns = [self.meter.of(name) for name in LOOPS]
            longest = max(each.longest for each in turns) / 1000
            callback = max(each.longest_callback for each in turns) / 1000
            if longest < shortest:
                shortest, count.longest, count.longest_callback = longest, longest, callback
            if count.findings or longest <= TURN_MAX_S:
                break
            slow += [
                f"{numbers}, {name}: {line}"
                for name in LOOPS
                for line in self.meter.slow_turns(name)[:5]
            ]
        if shortest > TURN_MAX_S:
            count.findings += [f"turns above 10 ms, {TRIES} times", *slow]
        else:
            count.again = slow
        return count

    def _send(self, door: str, first: int, number_of: int, until: float | None) -> Count:
        left = None if until is None else until - time.monotonic()
        if door in ("control", "definitions"):
            way = asking.Control(self.appliance, door)
            return asking.fuzz(way, self.seed, first, number_of, self.run.look, left)
        if door in ASKED:
            pages = asking.Pages(self.appliance, door)
            return asking.fuzz(pages, self.seed, first, number_of, self.run.look, left)
        count, begun = Count(), time.monotonic()
        octets, sessions = self.run.octets[door], self.run.sessions[door]
        try:
            self.run.go(first, number_of, door, math.inf if until is None else until)
        except FoundError as error:
            count.findings.append(str(error))
        count.mutants = self.run.sessions[door] - sessions
        count.seconds = time.monotonic() - begun
        count.octets = self.run.octets[door] - octets
        return count


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "--mutants", type=int, default=10_000_000, help="all doors together (10,000,000)"
    )
    parser.add_argument("--seconds", type=float, default=7200, help="at most (7,200)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant (0)")
    parser.add_argument("--door", action="append", choices=SHARES, help="only these; all if none")
    return parser.parse_args(arguments)


def main() -> int:
    """Exit status 1 if something was found."""
    options = options_of()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the appliance is ended
    doors = options.door or list(SHARES)
    whole = sum(SHARES[door] for door in doors)
    amounts = {door: max(1, options.mutants * SHARES[door] // whole) for door in doors}
    begun = time.monotonic()
    until = begun + options.seconds
    counts: dict[str, Count] = {}

    def report(door: str, count: Count) -> None:
        counts[door] = count
        passed = time.monotonic() - begun
        print(f"{passed:6.0f} s seed {options.seed} {door:17} {count}", flush=True)

    # One after the other, each in a new process: what one does to itself is no other's.
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    left = [door for door in IN_PROCESSES if door in doors]
    going: list[tuple[str, Future[Count]]] = [
        (
            door,
            pool.submit(in_process, door, options.seed, options.first, amounts[door], until),
        )
        for door in left
    ]
    with_sockets = [door for door in doors if door not in IN_PROCESSES]
    base = Path(tempfile.mkdtemp(prefix="leveret-fuzz-", dir=MEMORY if MEMORY.is_dir() else None))
    if with_sockets:
        _through_sockets(with_sockets, base, options, amounts, until, report)
    for door, future in going:
        try:
            report(door, future.result())
        except BrokenProcessPool:
            report(door, Count(findings=["the process ended: a crash"]))
    pool.shutdown()
    found = [door for door, count in counts.items() if count.findings]
    mutants = sum(count.mutants for count in counts.values())
    print(
        f"{mutants:,} mutants, seed {options.seed}: {f'found in {found}' if found else 'nothing'}"
    )
    if found:
        print(f"data: {base}")
    else:
        shutil.rmtree(base, ignore_errors=True)  # what was killed may write a last file
    return 1 if found else 0


def _through_sockets(
    doors: list[str],
    base: Path,
    options: argparse.Namespace,
    amounts: dict[str, int],
    until: float,
    report: Callable[[str, Count], None],
) -> None:
    sockets = Sockets(base, options.seed)
    try:
        for number, door in enumerate(doors):
            # What is left of the time, in equal parts: a slow door takes none of another's.
            part = (until - time.monotonic()) / (len(doors) - number)
            report(door, sockets.go(door, options.first, amounts[door], time.monotonic() + part))
            process = sockets.appliance.process
            if process is None or process.poll() is not None:
                break
    finally:
        if sockets.appliance.process is not None:
            sockets.appliance.kill()


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
