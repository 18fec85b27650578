"""Crash states of recorded workloads, then games of the store's state machine, then kill -9 under
load, restarted twice.

`python -m tests.crash --states 10000 --games 300 --cycles 50`; the long form, an hour or two, is
`--states 100000 --games 5000 --cycles 1000`. Each part is left out by 0.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.bench.leveret import Leveret
from tests.bench.rabbitmq import RabbitMQ
from tests.crash import machine
from tests.crash.explore import explore_many
from tests.crash.loop import Crash
from tests.crash.profiles import PROFILES

# So that files of shared bodies fill, die and are collected within a cycle.
SMALL_BODY_FILES = ["--body-file-size", "262144", "--body-collect-quiet", "0.2"]


def played(games: int) -> bool:
    """Plays games of the state machine; whether the store was what it should be in all of them."""
    for backend in ("ram", "leveldb") if games else ():
        began = time.monotonic()
        try:
            machine.run(backend, games)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            traceback.print_exception(error)
            print(f"games with the index {backend}: FAULTS", flush=True)
            return False
        seconds = time.monotonic() - began
        print(f"{games:,} games with the index {backend}: 0 faults, {seconds:.0f} s", flush=True)
    return True


def main() -> int:
    """Exit status 1 if any message went wrong; the data directory is then kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--states", type=int, default=10_000, help="crash states (10,000)")
    parser.add_argument(
        "--games", type=int, default=300, help="of the state machine, with each index (300)"
    )
    parser.add_argument("--cycles", type=int, default=50, help="kills, each restarted twice (50)")
    parser.add_argument(
        "--workloads", default="", help=f"kinds for the states, of {', '.join(PROFILES)} (all)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--clean-stops", type=float, default=0.2, help="share of SIGTERMs (0.2)")
    parser.add_argument("--rabbitmq", action="store_true", help="kill RabbitMQ instead")
    parser.add_argument("--keep", action="store_true", help="keep the data directory")
    options = parser.parse_args()
    only = tuple(options.workloads.split(",")) if options.workloads else ()
    if unknown := set(only) - PROFILES.keys():
        parser.error(f"no such kind of workload: {', '.join(sorted(unknown))}")
    explored = explore_many(
        options.states, options.seed, lambda text: print(text, flush=True), only=only
    )
    print(f"seed {options.seed}: {explored}", flush=True)
    for step in sorted(explored.steps):
        print(f"  {explored.steps[step]:7,} states behind: {step}", flush=True)
    if explored.faulty or not played(options.games):
        return 1
    if not options.cycles:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the broker is ended
    base = Path(tempfile.mkdtemp(prefix="leveret-crash-"))
    victim = RabbitMQ(base / "broker") if options.rabbitmq else Leveret(base / "broker")
    crash = Crash(victim, base / "journals", run=options.seed, seed=options.seed)
    crash.log = base / "broker/output"
    crash.clean_stops = options.clean_stops
    crash.options = [
        [],
        ["--segment-size", "65536", *SMALL_BODY_FILES],
        ["--segment-size", "1048576", "--message-store-index", "leveldb"],
        ["--message-store-index", "leveldb", *SMALL_BODY_FILES],
    ]
    start = time.monotonic()
    clean = False
    try:
        crash.prepare()
        for number in range(options.cycles):
            verdict = crash.cycle()
            seconds = time.monotonic() - start
            print(f"cycle {number + 1}/{options.cycles} at {seconds:.0f} s: {verdict}", flush=True)
            if not verdict.clean:
                break
        clean = crash.checker.verdict.clean and crash.cycles == options.cycles
    finally:
        victim.stop()
        if clean and not options.keep:
            shutil.rmtree(base)
        else:
            print(f"kept: {base}", file=sys.stderr)
    restarts = sorted(crash.restart_seconds)
    bound = f"0 faults, so fewer than {3 / max(crash.cycles, 1):.1%} of cycles at 95 %"
    print(
        f"seed {options.seed}: {crash.cycles} cycles, {len(restarts) - crash.clean} kills, "
        f"{crash.clean} clean stops, "
        f"{crash.checker.verdict.confirmed:,} confirmed; "
        f"{bound if clean else 'FAULTS'}; "
        f"restart median {restarts[len(restarts) // 2]:.2f} s, longest {restarts[-1]:.2f} s"
    )
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
