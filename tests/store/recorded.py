"""Runs `manage.py` with the store's recorder on; the recording is written at the end, as JSON.

`python -m tests.store.recorded broker ...`; the environment variable WRITE_RECORDING_TO names
the file. PLANTED_FAULT plants one of `tests.crash.planted_build.FAULTS`. FAIL_DISK, as
`kind:n:errno`, lets the n-th operation of a kind fail, counted from the moment the broker has its
listeners. At the first SIGUSR1 the next sync stalls, for 60 s or until the second one;
`run/stall-set` appears.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

from tests.crash import planted_build

if fault := os.environ.get(planted_build.VARIABLE):
    planted_build.use(fault)  # before the product is imported

from tests.store import recorder


def save() -> None:
    """Writes what was recorded."""
    Path(os.environ["WRITE_RECORDING_TO"]).write_text(json.dumps(recorder.recorded()))


def plant() -> None:
    """Sets the failpoint once the broker has written its addresses."""
    if failure := os.environ.get("FAIL_DISK"):
        kind, nth, number = failure.split(":")
        data = Path(sys.argv[sys.argv.index("--data-dir") + 1])
        while not (data / "run/broker.json").exists():
            time.sleep(0.001)
        recorder.fail(kind, int(nth), int(number))
        (data / "run/failpoint-set").touch()


def stall(*_: object) -> None:
    """Begins a stall of the disk, or ends it."""
    data = Path(sys.argv[sys.argv.index("--data-dir") + 1])
    begins = not (data / "run/stall-set").exists()
    for kind in os.environ.get("STALL_DISK", "sync,sync_file_system").split(","):
        recorder.stall(kind, 60 if begins else 0)
    (data / "run/stall-set").touch()


if __name__ == "__main__":
    recorder.record(True)
    signal.signal(signal.SIGUSR1, stall)
    threading.Thread(target=plant, daemon=True).start()
    atexit.register(save)
    manage = Path(__file__).resolve().parents[2] / "manage.py"
    sys.argv = [str(manage), *sys.argv[1:]]
    runpy.run_path(str(manage), run_name="__main__")
