"""Makes the archive of Spark's classes (`class_archive`).

Java writes it when it ends (`-XX:ArchiveClassesAtExit`), which takes longer than a run. So a
process of its own does it, once for each Java and Spark, when nothing else is to be done:
`python -m management.reports.class_archive_maker PLACE [JAVA_HOME]`. It computes what every run
needs, on a made-up hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .class_archive import QUIET, path_of

ROOT = Path(__file__).resolve().parents[2]

SECONDS_MAX = 900.0
"""So long it may take; then it is ended, and tried again after the next start of this process."""

BYTES = 200 << 20
"""How large an archive is, about: where there is no room for two of them, none is made."""


MEMORY = 2 << 30
"""Making one takes 1.3 GB, most of it when Java ends: with less available than this it waits."""

LOOK_SECONDS = 5.0


class Maker:
    """Has the archive made, once in the life of this process, when `is_busy` says that no Spark
    runs: its memory does not come on top of that of a run."""

    def __init__(self, place: Path, java_home: Path | None, is_busy: Callable[[], bool]) -> None:
        self._place = place
        self._is_busy = is_busy
        home = [str(java_home)] if java_home else []
        module = "management.reports.class_archive_maker"
        self._command = [sys.executable, "-m", module, str(place), *home]
        self._task: asyncio.Task[None] | None = None

    def begin(self, most: int) -> None:
        """Begin, unless it was begun or there is no room; `most` is the disk space it may take."""
        if self._task is None and most >= BYTES and self._has_room():
            self._task = asyncio.create_task(self._make())

    async def end(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _has_room(self) -> bool:
        with contextlib.suppress(OSError):
            self._place.mkdir(parents=True, exist_ok=True)
            state = os.statvfs(self._place)
            there = sum(path.stat().st_size for path in self._place.glob("classes-*.jsa"))
            return there + state.f_bavail * state.f_frsize > 2 * BYTES
        return False

    async def _make(self) -> None:
        while self._is_busy() or _available() < MEMORY:  # noqa: ASYNC110 (memory has no event)
            await asyncio.sleep(LOOK_SECONDS)
        process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _available() -> int:
    """Bytes of memory that programs can still have, as the system says."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return MEMORY


def main(place: Path, java_home: Path | None) -> int:
    """Make the archive unless it is there; the exit status."""
    from management.priority import give_way_as_parent

    from . import java, session

    give_way_as_parent()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as name:
        scratch = Path(name)
        runtime = java.find(java_home, os.environ, place)
        path = path_of(place, runtime)
        if path.is_file():
            return 0
        part = scratch / path.name
        options = {
            "spark.driver.extraJavaOptions":
                f"{session.JVM_FLAGS} -XX:ArchiveClassesAtExit={part} {QUIET}"
        }  # fmt: skip
        spark, _ = session.open_session("local[*]", options, java_home, scratch, place)
        _use(spark, scratch)
        gateway: Any = spark.sparkContext._gateway
        process: subprocess.Popen[bytes] = gateway.proc
        spark.stop()
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        for old in place.glob("classes-*.jsa"):
            old.unlink()
        part.rename(path)
    return 0


def _use(spark: Any, scratch: Path) -> None:
    """What runs do: an hour into the tables, a report of it."""
    from . import folding, results, transforms
    from .catalog import QUEUE_USAGE
    from .intake import Intake
    from .keeping import Keeping

    now = datetime(2026, 11, 21, 10, tzinfo=UTC)
    usage = scratch / "usage"
    usage.mkdir()
    for hours, name in ((26, "2026-11-20T08-1"), (1, "2026-11-21T09-1")):
        since = int((now - timedelta(hours=hours)).timestamp() * 1000)
        line = {"v": 2, "kind": "queue", "since": since, "until": since + 10_000, "run": 1,
                "vhost": "/", "name": "q", "publish": 5, "publish_bytes": 80}  # fmt: skip
        (usage / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    intake = Intake(usage, scratch / "work", Keeping(86400, 10**8, 10**9), now)
    intake.finish(lambda: spark)
    rows = folding.read(spark, intake.tables.paths(intake.tables.files("hour")))
    view = QUEUE_USAGE.view()
    first = now - timedelta(days=2)
    rows = transforms.within(rows, first, None, "")
    frame = transforms.transformed(QUEUE_USAGE, rows, view, first, None, 10**9)
    (scratch / "run").mkdir()
    results.write(frame, view, scratch / "run", scratch, 10)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
