"""Write the table of limits in docs/security.md from the table in `broker.settings.config`.

.venv/bin/python tools/security_page.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from written_page import written  # noqa: E402

from broker.settings import config  # noqa: E402
from broker.settings.bounds import FIXED  # noqa: E402

PAGE = ROOT / "docs" / "security.md"
BEGIN = (
    "<!-- Written by tools/security_page.py from config.py and bounds.py in broker/settings. -->\n"
)
END = "<!-- The end of what is written. -->\n"
KINDS = ("count", "size", "time", "memory")
LIMIT = re.compile(
    r"(_max|_timeout|_limit|_lifetime|_bytes|_watermark|_reserve|_backlog)$|^(max|login|http)_"
    r"|^(heartbeat|body_in_memory|tail_memory)$"
)
NO_LIMIT = ("http_port",)


def limits() -> list[config.Setting]:
    """The settings that bound what a client can have, keep or make."""
    return [
        item
        for item in config.settings()
        if item.kind in KINDS and LIMIT.search(item.name) and item.name not in NO_LIMIT
    ]


def table() -> str:
    lines = ["| Setting | Default | What it bounds |", "| --- | --- | --- |"]
    lines += [f"| `{item.name}` | `{item.shown_default()}` | {item.text} |" for item in limits()]
    lines += ["", "Without a setting, for the reasons in [configuration.md](configuration.md):", ""]
    lines += ["| At most | Of |", "| --- | --- |"]
    lines += [f"| {row.value:,} | {row.what} |" for row in FIXED]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(written(PAGE, page(PAGE.read_text())))
