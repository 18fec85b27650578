"""A copy of the checkout in which one line at a time is changed, compiled and tested."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.appliance import ROOT
from tests.forks import PR_SET_CHILD_SUBREAPER
from tests.mutants.sites import Site

sys.path.insert(0, str(ROOT / "tools"))
import compiled  # tools/ is no package

MANIFEST = compiled.MANIFEST.relative_to(ROOT)
PYTHON = ".venv/bin/python"
TEST_SECONDS_MAX = 100
"""What a test may take before it fails."""
SILENCE_SECONDS_MAX = 150.0
"""If no test ends for this time, one does not come back from compiled code, where nothing but the
end of its process can stop it."""

_BEGUN = re.compile(r"^(tests/\S+?::.+?) ?$", re.MULTILINE)
_ENDED = re.compile(r"^\[gw\d+\] \[ *\d+%\] ([A-Z]+) (tests/.+?) ?$", re.MULTILINE)
_SUMMED_UP = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


@dataclass
class Outcome:
    """What came of a run of tests. `hanging`: those that did not end in time."""

    failed: list[str] = field(default_factory=list)
    hanging: list[str] = field(default_factory=list)


class BuildError(Exception):
    """The modules do not compile; the text holds what the compiler printed."""


class Checkout:
    """A copy of `source`, built, which is tested with the environment of `source`. `jobs`: test
    files that run at a time."""

    def __init__(self, jobs: int, source: Path = ROOT) -> None:
        # Where a socket's path fits that lies in a test's directory.
        self.base = Path(tempfile.mkdtemp(prefix="leveret-mutants-"))
        self.root = self.base / "copy"
        self._jobs = jobs
        self._source = source
        self._python = str(source / PYTHON) if source != ROOT else sys.executable
        # What a killed test run leaves behind becomes a child of this process, to be ended.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._copy()
        self._build()

    def _copy(self) -> None:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        source = self._source
        listed = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
        names = listed.stdout.split("\0")[:-1]
        built = [_binary(Path(name)) for name in names if name.endswith(".pyx")]
        for name in [*names, *map(str, built), str(MANIFEST)]:
            if (source / name).exists():
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / name, target)

    def remove(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)

    @contextlib.contextmanager
    def changed(self, site: Site) -> Iterator[None]:
        """In here the line is as the site says, and its module is built from it. Raises BuildError
        if it does not compile."""
        source = self.root / site.path
        binary = self.root / _binary(Path(site.path))
        kept = {path: path.read_bytes() for path in (source, binary, self.root / MANIFEST)}
        try:
            source.write_text(site.apply(source.read_text()))
            self._build()
            yield
        finally:
            for path, content in kept.items():
                path.unlink(missing_ok=True)
                path.write_bytes(content)

    def _build(self) -> None:
        result = subprocess.run(
            [self._python, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=self.root,
            env={**os.environ, "LEVERET_FOLDERS": "broker"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise BuildError(result.stdout)

    def run(self, what: Sequence[str], limit: float) -> Outcome:
        """Tests until the first failure, side by side; `what` are paths and options of pytest,
        `limit` the seconds after which they count as hanging."""
        shared = ["-n", str(self._jobs), "--dist", "loadfile"]
        return self._run([*shared, *what], TEST_SECONDS_MAX, SILENCE_SECONDS_MAX, limit)

    def run_slow(self, what: Sequence[str], limit: float) -> Outcome:
        """The same, where a test may take long."""
        shared = ["-n", str(self._jobs), "--dist", "loadfile"]
        return self._run([*shared, *what], 3 * TEST_SECONDS_MAX, 3 * SILENCE_SECONDS_MAX, limit)

    def fails_again(self, tests: Sequence[str]) -> bool:
        """Whether one of these tests fails when nothing else runs."""
        limit = 3 * SILENCE_SECONDS_MAX
        outcome = self._run(["-n", "1", *tests], 3 * TEST_SECONDS_MAX, limit, limit)
        return bool(outcome.failed or outcome.hanging)

    def _run(
        self, arguments: Sequence[str], test_seconds: int, silence: float, limit: float
    ) -> Outcome:
        output = self.base / "output"
        command = [self._python, "-m", "pytest", "-v", "-x", "--tb=no", "-p", "no:cacheprovider"]
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*command, f"--basetemp={self.base / 't'}", *arguments],
                cwd=self.root,
                env={**os.environ, "LEVERET_TEST_SECONDS_MAX": str(test_seconds)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            in_time = _ends(process, output, silence, time.monotonic() + limit)
        finally:
            _end_all(process)
        return _read(output.read_text(errors="replace"), process.returncode if in_time else None)


def _binary(source: Path) -> Path:
    """Of a module, both from the root of a checkout."""
    return compiled.binary(ROOT / source).relative_to(ROOT)


def _read(text: str, status: int | None) -> Outcome:
    """What came of a run that printed this; no status: it was ended."""
    ended = _ENDED.findall(text)
    failed = [test for result, test in ended if result in ("FAILED", "ERROR")]
    failed = list(dict.fromkeys([*failed, *_SUMMED_UP.findall(text)]))
    if status is None and not failed:
        tests = {test for _, test in ended}
        hanging = [test for test in _BEGUN.findall(text) if test not in tests]
        return Outcome(hanging=hanging or ["the run of tests"])
    if status not in (None, 0, 5) and not failed:
        # pytest itself could not begin: conftest.py imports what does not work any more.
        failed = [f"pytest, which ended with {status}"]
    return Outcome(failed)


def _children() -> list[int]:
    place = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(each) for each in place.read_text().split()]


def _ends(process: subprocess.Popen[bytes], output: Path, silence: float, until: float) -> bool:
    """Wait for the end of a process. Whether it ends before that time, and prints a line in each
    stretch of `silence` seconds."""
    size, at = 0, time.monotonic()
    while process.poll() is None:
        time.sleep(0.1)
        for pid in _children():
            # Others would take what has ended, and is waited for by nothing, for a process.
            if pid != process.pid:
                os.waitpid(pid, os.WNOHANG)
        if output.stat().st_size != size:
            size, at = output.stat().st_size, time.monotonic()
        if time.monotonic() > min(until, at + silence):
            return False
    return True


def _end_all(process: subprocess.Popen[bytes]) -> None:
    """End what the process has started, and the process if it runs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while children := _children():
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
