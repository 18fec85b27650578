"""Spark's classes as Java keeps them in memory, in a file: half of the CPU of a start is loading
and checking them. `class_archive_maker` makes it. Java looks itself whether an archive fits its
class path, and does without one that does not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from .java import Java

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java tells nothing of archives that do not fit."""


def path_of(place: Path, runtime: Java) -> Path:
    """Where the archive of a Java with the installed Spark is, or would be, below `place`."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    words = (str(runtime.home.resolve()), str(runtime.version), pyspark.__version__, str(jars))
    return place / f"classes-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:16]}.jsa"


def flags(place: Path, runtime: Java) -> str:
    """Options of a Java that uses the archive, if there is one."""
    path = path_of(place, runtime)
    if not path.is_file() or any(letter in str(path) for letter in ' "\\'):
        return ""
    return f"-XX:SharedArchiveFile={path} -Xshare:auto {QUIET}"
