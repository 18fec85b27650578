"""`python -m tests.fuzz --seconds 600`: mutated sessions through every door of an appliance."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.appliance import Appliance
from tests.fuzz.runs import AT_ONCE, LOOK_EVERY, FoundError, Run, memory, start


def main() -> int:
    """Exit status 1 if something was found; the data directory is then kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--first", type=int, default=0, help="number of the first session")
    parser.add_argument("--door", help="one of tcp, tls, proxy, websocket, web port; else all")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the appliance is ended
    base = Path(tempfile.mkdtemp(prefix="leveret-fuzz-"))
    appliance = Appliance("serve", base)
    found: FoundError | None = None
    try:
        run = Run(appliance, start(appliance, base), options.seed)
        begun, number, said_at = time.monotonic(), options.first, 0.0
        while time.monotonic() - begun < options.seconds:
            try:
                run.go(number, AT_ONCE * LOOK_EVERY, options.door)
            except FoundError as error:
                found = error
                break
            number += AT_ONCE * LOOK_EVERY
            if time.monotonic() - said_at > 30:
                said_at = time.monotonic()
                sizes = " ".join(
                    f"{name} {memory(appliance.pids[name]) >> 20} MiB" for name in ("broker", "web")
                )
                print(f"seed {options.seed}: {number} sessions, {sizes}", flush=True)
        for door, count in sorted(run.sessions.items()):
            print(f"{door:10} {count:9} sessions {run.octets[door]:13} octets")
        if found is not None:
            print(f"{found}\nits data: {base}")
            return 1
        status = appliance.stop()
        print(f"nothing found in {sum(run.sessions.values())} sessions; it ended with {status}")
        return status
    finally:
        if appliance.process is not None:
            appliance.kill()
        if found is None:
            shutil.rmtree(base)


if __name__ == "__main__":
    sys.exit(main())
