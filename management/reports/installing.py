"""Whether the packages that only reports need are being installed beside the running appliance.

`make run` starts the appliance without Spark and Java, which are the largest download, and installs
them meanwhile (`tools/environment.py`). It locks a file for as long as that takes.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

LOOK_SECONDS = 0.5
"""Between two looks of a run that waits."""

MARK = Path(sys.prefix) / "leveret-reports.installing"


def under_way() -> bool:
    """True while the file is locked; one that an interrupted installation left behind is not."""
    try:
        with MARK.open("rb") as mark:
            fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
