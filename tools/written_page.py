"""A page of the docs that a tool writes from tables of the code: written, or only checked."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def written(page: Path, text: str) -> int:
    """Writes the page, or with `--check` says whether it is as it would be written. Returns the
    exit status."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"{page.relative_to(ROOT)} is out of date; run `make docs`")
    return 1
