"""Runs `manage.py` with the store's recorder on; the recording is written at the end, as JSON.

`python -m tests.store.recorded broker ...`; the environment variable WRITE_RECORDING_TO names
the file.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import sys
from pathlib import Path

from broker.store import disk


def save() -> None:
    """Writes what was recorded."""
    Path(os.environ["WRITE_RECORDING_TO"]).write_text(json.dumps(disk.recorded()))


if __name__ == "__main__":
    disk.record(True)
    atexit.register(save)
    manage = Path(__file__).resolve().parents[2] / "manage.py"
    sys.argv = [str(manage), *sys.argv[1:]]
    runpy.run_path(str(manage), run_name="__main__")
