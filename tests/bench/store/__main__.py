"""`python -m tests.bench.store`: what the storage engine does, beside what it should and what the
machine can."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import report
from tests.bench.generator import GeneratorFailed
from tests.bench.store import (
    bodies,
    cold_reading,
    collecting,
    confirms,
    index,
    key_index,
    queues,
    restarts,
)
from tests.bench.store.frame import Bench, Row

ROWS: tuple[Row, ...] = (
    *queues.ROWS,
    *restarts.ROWS,
    *bodies.ROWS,
    *collecting.ROWS,
    *index.ROWS,
    *key_index.ROWS,
    *cold_reading.ROWS,
    *confirms.ROWS,
)


def main() -> int:
    """Exit status 1 if a row could not be measured; targets that are missed are printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.store", description=__doc__)
    parser.add_argument("--only", default="", help="rows, comma-separated, e.g. T-Q1,T-Q4")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs")
    parser.add_argument("--full", action="store_true", help="full sizes (100 million messages)")
    parser.add_argument("--directory", type=Path, help="where data goes (a temporary one)")
    parser.add_argument("--list", action="store_true", help="the rows, and what each proves")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name]
    if unknown := set(names) - {row.name for row in ROWS}:
        parser.error(f"no row named {', '.join(sorted(unknown))}")
    if options.list:
        print("\n".join(f"{row.name:5} {row.proves}" for row in ROWS))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the brokers are ended
    base = options.directory or Path(tempfile.mkdtemp(prefix="leveret-bench-"))
    base.mkdir(parents=True, exist_ok=True)
    bench = Bench(base, quick=options.quick, full=options.full)
    failed = False
    try:
        print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; {report.processor()}")
        for row in ROWS:
            if names and row.name not in names:
                continue
            print(f"{row.name:5} {row.proves}", flush=True)
            try:
                for figure in row.measure(bench):
                    print(figure.line(row.name), flush=True)
            except (GeneratorFailed, RuntimeError, OSError) as error:
                print(f"{row.name:5} FAILED: {error}", flush=True)
                failed = True
            finally:
                bench.end()
        print(f"commit {bench.commit}")
    finally:
        if not options.directory:
            shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
