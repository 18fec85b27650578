"""Faults of all kinds while a shovel and a link carry messages, many times over.

`python -m tests.bridges --cycles 100` has so many of each kind of bridge; the exit status is 1 if a
confirmed message was lost, or a shovel did not mark a double.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.bridges.faults import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bridges", description=__doc__)
    parser.add_argument("--cycles", type=int, default=100, help="faults of each kind (100)")
    parser.add_argument("--kind", choices=("shovel", "link"), help="one of them alone")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    is_fine = True
    for kind in (options.kind,) if options.kind else ("shovel", "link"):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="bridges-") as directory:
            base = Path(directory)
            tell = lambda line: print(f"  {line}", flush=True)  # noqa: E731
            found = asyncio.run(run(base, kind, options.cycles, options.seed, tell))
        seconds = time.monotonic() - began
        print(f"{kind}: {options.cycles} cycles in {seconds:.0f} s: {found}", flush=True)
        is_fine = is_fine and not found.lost and not (kind == "shovel" and found.unmarked)
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
