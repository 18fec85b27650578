"""The name of one build of the static files: a hash over all of them.

Every file is served below `/static/<build>/`, so that ES modules may import each other by relative
paths without an import map and every answer may be cached for ever.
"""

import hashlib
from pathlib import Path


def build_name(root: Path) -> str:
    """Ten hexadecimal digits that change when any file below `root` changes; `empty` if none."""
    digest = hashlib.sha256()
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    for path in paths:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:10] if paths else "empty"
