"""One Spark session for tests that only need frames, and a reports process for the others."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from broker.settings.config import Config
from management.reports import class_archive, client, java
from management.reports.process import Reports
from management.reports.runs import Run, Runs
from tests.appliance import NEVER, Appliance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 240.0
ARCHIVES = ROOT / "build" / "java"
"""Where `test_class_archive.py` has Spark's classes kept, for all tests that come later."""
NICE = 0
"""By default a run stays behind all else, which on a busy machine makes it ten times as long."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as the reports open it, in this process, with whatever Java there is."""
    from management.reports.session import open_session

    scratch = tmp_path_factory.mktemp("spark")
    environment = dict(os.environ)
    session, _ = open_session("local[2]", {}, None, scratch, ARCHIVES)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(scope="session")
def archive() -> Path:
    """The archive of Spark's classes of this checkout, which later runs of tests find made."""
    module = "management.reports.class_archive_maker"
    command = [sys.executable, "-m", module, str(ARCHIVES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = ARCHIVES.glob("classes-*.jsa")
    return made


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server with the bucket `usage`, and credentials in the environment."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "anna")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
        httpx.put(f"{address}/usage", timeout=60).raise_for_status()
        yield address
    server.stop()


class ReportsProcess:
    """A real reports process on a data directory of its own; it computes what it is asked for."""

    def __init__(self, data_dir: Path, environ: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.schedules = [f"--reports-schedule={NEVER}", f"--reports-daily-schedule={NEVER}"]
        self.spark_keep = 0
        self.runs = Runs(data_dir / "reports")
        (data_dir / "usage").mkdir(parents=True, exist_ok=True)
        self._environ = dict(environ if environ is not None else os.environ)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> ReportsProcess:
        link_archives(self.data_dir)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "manage.py",
                "reports",
                f"--data-dir={self.data_dir}",
                f"--reports-nice={NICE}",
                f"--spark-keep={self.spark_keep}",
                "--spark-class-archive=0",
                *self.schedules,
            ],
            cwd=ROOT,
            env=self._environ,
            start_new_session=True,
        )
        wait_until(self._answers, "the reports process to answer")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the reports process ended"
        try:
            return bool(client.status(self.data_dir).next_at)
        except client.ReportsUnavailable:
            return False

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(signal_number)
        status = self.process.wait(30)
        self.process = None
        return status

    def run(self, report: str = "queue-usage", asked_by: str | None = "anna") -> Run:
        """Run a report to its end."""
        run_id = client.run(self.data_dir, report, asked_by)
        wait_until(lambda: self.runs.read(report, run_id).is_over, "the run to end")
        return self.runs.read(report, run_id)


def link_archives(data_dir: Path) -> None:
    """Spark of this data directory starts with the classes that are kept, if they are."""
    place = data_dir / "run" / "java"
    place.mkdir(parents=True, exist_ok=True)
    for path in ARCHIVES.glob("classes-*.jsa"):
        if not (place / path.name).exists():
            (place / path.name).symlink_to(path)


def reports_in(data_dir: Path) -> Reports:
    """The reports process as an object that nothing starts."""
    (data_dir / "reports").mkdir(exist_ok=True)
    return Reports(Config(data_dir=data_dir), data_dir / "reports")


def wait_until(condition: Callable[[], bool], what: str, timeout: float = TIMEOUT) -> None:
    """Look every twentieth of a second: files and other processes give no event to await."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout:g} s for {what}"
        time.sleep(0.05)


GATED_JAVA = """\
#!/bin/sh
[ "$1" = -version ] || while [ -e {gate} ]; do sleep 0.1; done
exec {java} "$@"
"""


def gate_of(appliance: Appliance) -> Path:
    """While a file is there, Spark of this appliance does not start."""
    return appliance.data_dir.parent / "gate"


def _gated_java(place: Path, appliance: Appliance) -> Path:
    """The home of a Java that waits at the gate, with the archive of the one that it runs."""
    real = java.find(None, os.environ, place / "found")
    home = place / "java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    names = {"gate": gate_of(appliance), "java": real.home / "bin" / "java"}
    program.write_text(
        GATED_JAVA.format(**{name: shlex.quote(str(path)) for name, path in names.items()})
    )
    program.chmod(0o755)
    kept = class_archive.path_of(appliance.data_dir / "run" / "java", real)
    if kept.exists():
        gated = java.Java(home, real.version, "configured")
        class_archive.path_of(kept.parent, gated).symlink_to(kept)
    return home


@pytest.fixture(scope="session")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A whole appliance that writes its usage every second and computes no report by itself."""
    place = tmp_path_factory.mktemp("reports")
    appliance = Appliance("serve", place, usage_interval=1, reports_nice=NICE)
    link_archives(appliance.data_dir)
    appliance.settings["java_home"] = _gated_java(place, appliance)
    appliance.start()
    yield appliance
    appliance.close()


@pytest.fixture
def make_reports(tmp_path: Path) -> Iterator[Callable[..., ReportsProcess]]:
    """A function that starts a reports process: `make_reports(environ={...})`."""
    made: list[ReportsProcess] = []

    def make(
        environ: Mapping[str, str] | None = None,
        *,
        schedules: list[str] | None = None,
        spark_keep: int = 0,
    ) -> ReportsProcess:
        made.append(ReportsProcess(tmp_path / f"data{len(made)}", environ))
        if schedules is not None:
            made[-1].schedules = schedules
        made[-1].spark_keep = spark_keep
        return made[-1].start()

    yield make
    for reports in made:
        if reports.process is not None:
            reports.stop(signal.SIGKILL)
