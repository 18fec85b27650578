"""`python -m tests.soak --minutes 30`: everything at once for half an hour.

Phases of mixed load (publishers and consumers that keep journals, the operators of
`tests.crash.storm`, streams, delays, transactions, WebSockets, pages, live sockets, scrapers,
imports, reports) with an attacker of each kind beside them. Each phase ends at a quiet point: the
queues are drained and compared with the journals, what clients made is deleted, and memory,
descriptors and files are noted. In the first third of the time the broker is killed (-9) in the
middle of every other phase, and once more at the end; in between it lives, so that what it does not
give back adds up. Status 1 if a message was lost or altered, something was logged as a mistake, or
after the first third a quiet point is not like the first one of the same start.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Soak


def main() -> int:
    """Exit status 1 if anything was wrong; the directory is then kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="of all phases (30)")
    parser.add_argument("--phase", type=float, default=60, help="seconds of load in one (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    parser.add_argument("--no-reports", action="store_true", help="start no Spark")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the appliance is ended
    base = Path(tempfile.mkdtemp(prefix="leveret-soak-"))
    soak = Soak(
        *(base / "soak", options.minutes * 60, options.seed, options.phase),
        reports_every=0 if options.no_reports else 6,
    )
    well = False
    try:
        verdict = soak.go()
        print(f"seed {options.seed}: {verdict}\n{soak}", flush=True)
        well = verdict.clean and not soak.trouble
    finally:
        process = soak.whole.appliance.process
        if process is not None:
            soak.whole.appliance.kill()
        if well:
            shutil.rmtree(base, ignore_errors=True)
        else:
            print(f"data: {base}")
    return 0 if well else 1


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
