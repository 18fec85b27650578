"""Writes docs/formats/data-directory.md from the table of paths; --check only compares."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from written_page import written  # noqa: E402

from broker.store.directory import paths  # noqa: E402

PAGE = ROOT / "docs" / "formats" / "data-directory.md"

HEAD = """# The data directory

<!-- tools/paths_page.py writes this page from broker/store/directory/paths.py. -->

Every path below the data directory has a class, which says what becomes of it where a second
directory follows this one:

- **replicated**: what the appliance is. All of it passes the store's own functions
  (`broker/store/files/disk.pyx`), whose observer (`observer.pyx`) sees every operation, syncs
  and truncations included, with its bytes, one at a time and numbered without a hole. These
  operations, carried out again in that order, make the same files (`tests/crash/test_observer.py`).
  Files that the reports process makes are finished below `run/`; the broker brings them into their
  place, and removes old ones, in slices of 256 KiB (`files.carry` of the
  [control socket](../control-socket.md)).
- **local**: of this machine or this run; it means nothing elsewhere.
- **rebuilt**: found out again from replicated files.

`<id>` is the 16 hexadecimal digits of an incarnation, `<n>` a number of ten digits; `*` stands for
anything within a name, `**` for anything below. The first row that matches counts. A name that ends
with `.tmp` or `.part` is a file that is not whole yet. `tests/reports/test_paths.py` looks at all
that a running appliance writes and finds each path here.

| Path | Class | What it is |
| --- | --- | --- |
"""


def page() -> str:
    rows = [f"| `{row.pattern}` | {row.kind} | {row.what} |" for row in paths.PATHS]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(written(PAGE, page()))
