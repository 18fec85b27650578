"""Real processes for tests: a broker, or the whole appliance, on free ports and its own data."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from broker.process import lifetime
from tests import forks

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, str(ROOT / "manage.py")]
# However the test run ends, what it started ends with it.
LIFETIME = os.pipe()
# A report that is due would start Spark in the middle of a test.
NEVER = "0 0 1 1 *"
START_TIMEOUT = 60.0
PART_STOP_TIMEOUT = 60
"""Parts that give way to others may wait long for the processor on a busy machine."""
STOP_TIMEOUT = 5.0 * PART_STOP_TIMEOUT
"""The parts stop one after the other."""


class NotReadyError(AssertionError):
    """The process ended or was silent instead of becoming ready; the text holds its log."""


class Appliance:
    """One `manage.py` command that runs until it is stopped or killed.

    `what` is "broker" (the broker alone) or "serve" (broker, web and reports under the
    supervisor). Settings are those of `broker.settings.config`, by name: `segment_size=65536`. All
    ports are free ones unless given. `start()` may be called again after `stop()` or `kill()`: the
    data stays.
    """

    def __init__(self, what: str, directory: Path, **settings: Any) -> None:
        self.what = what
        self.data_dir = Path(settings.get("data_dir", directory / "data"))
        self.log_file = directory / f"{what}.log"
        self.settings = {
            "data_dir": self.data_dir,
            "amqp_port": 0,
            "ws_port": 0,
            "http_port": 0,
            "metrics_port": -1,
            # The directories of many tests stay for a while.
            "disk_reserve": 0,
            # A slow disk of the machine that runs the tests is no fault of the product's.
            "disk_stall_after": 600,
            "stop_timeout": PART_STOP_TIMEOUT,
            # Tests of refusals need not wait for them.
            "login_refusal_delay": 0,
            "reports_schedule": NEVER,
            "reports_daily_schedule": NEVER,
            # A Spark that waits for the next run would take memory of many tests.
            "spark_keep": 0,
            "spark_class_archive": 0,
            **settings,
        }
        self.open_files: int | None = None
        """Limit of open files the process starts with; None for this one's."""
        self.environment: dict[str, str] = {}
        """Variables that the process gets besides this one's."""
        self.program = PROGRAM
        self.directory = ROOT
        """Where the program is started."""
        self.process: subprocess.Popen[bytes] | forks.Forked | None = None
        self.addresses: dict[str, list[Any]] = {}
        self.pids: dict[str, int] = {}

    # --- life ----------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> Appliance:
        """Start the process and, unless `wait` is false, wait until every listener accepts.

        It is a fork (`tests.forks`) where the test asks for no program, environment, directory or
        limit of its own.
        """
        assert self.process is None, "it runs already"
        self.log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            if self._may_fork():
                request = forks.Request(
                    [self.what, *self.options()], self._environment(), [LIFETIME[0]]
                )
                self.process = forks.server(self.what).run(request, log.fileno(), log.fileno())
            else:
                self.process = self._start_program(log)
        if wait:
            self.wait_ready()
        return self

    def _may_fork(self) -> bool:
        own = self.environment or self.open_files or self.directory != ROOT
        return forks.allowed and not own and self.program == PROGRAM

    def _environment(self) -> dict[str, str]:
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")},
            "LEVERET_CONFIG": "",
            "PYTHONUNBUFFERED": "1",
            lifetime.VARIABLE: str(LIFETIME[0]),
            **self.environment,
        }

    def _start_program(self, log: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.program, self.what, *self.options()],
            cwd=self.directory,
            env=self._environment(),
            pass_fds=[LIFETIME[0]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=self._limit_files if self.open_files else None,
        )

    def _limit_files(self) -> None:
        assert self.open_files is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, self.open_files))

    def options(self) -> list[str]:
        return [
            f"--{name.replace('_', '-')}={value}"
            for name, value in self.settings.items()
            if value is not None
        ]

    def wait_ready(self, timeout: float = START_TIMEOUT) -> None:
        """Wait for the addresses; they are noted when all listeners accept."""
        assert self.process is not None
        deadline = time.monotonic() + timeout
        exit_fd = os.pidfd_open(self.process.pid)
        exits = select.poll()
        exits.register(exit_fd, select.POLLIN)
        try:
            while not self._read_addresses():
                ended = exits.poll(20)
                if ended or time.monotonic() > deadline:
                    status = self.process.wait() if ended else None
                    how = f"ended with {status}" if ended else f"was silent for {timeout} s"
                    raise NotReadyError(f"{self.what} {how}; its log:\n{self.log()}")
        finally:
            os.close(exit_fd)

    def _read_addresses(self) -> bool:
        assert self.process is not None
        name = "broker.json" if self.what == "broker" else "addresses.json"
        try:
            note = json.loads((self.data_dir / "run" / name).read_text())
        except (OSError, ValueError):
            return False
        pids = note.pop("pid", None)
        if isinstance(pids, int):
            pids = {"broker": pids}
        leader = "broker" if self.what == "broker" else "supervisor"
        wanted = {"amqp"} if self.what == "broker" else {"amqp", "http"}
        if not isinstance(pids, dict) or pids.get(leader) != self.process.pid:
            return False
        if not wanted <= note.keys():
            return False
        if leader == "supervisor" and "ready in" not in self.log():
            return False
        self.addresses, self.pids = note, pids
        return True

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """Ask it to stop (SIGTERM) and return its exit status."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"it did not stop in {timeout} s; its log:\n{self.log()}"
            ) from None

    def wait(self, timeout: float = STOP_TIMEOUT) -> int:
        """Wait until it has ended by itself; returns its exit status."""
        assert self.process is not None
        status = self.process.wait(timeout)
        self.process = None
        return status

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def end(self, *, kill: bool) -> None:
        """`kill`, or a clean stop."""
        if kill:
            self.kill()
        else:
            status = self.stop()
            assert status == 0, f"{self.what} ended with {status}; its log:\n{self.log()}"

    def signal(self, number: signal.Signals, name: str | None = None) -> None:
        """Send a signal to the process, or to the part called `name`."""
        assert self.process is not None
        os.kill(self.pids[name] if name else self.process.pid, number)

    def close(self) -> None:
        """Stop it if it runs, and insist on a clean end."""
        if self.process is not None and self.process.poll() is None:
            self.end(kill=False)

    def log(self) -> str:
        """What it has printed since its last start."""
        try:
            with self.log_file.open("rb") as file:
                file.seek(self.log_start)
                return file.read().decode(errors="replace")
        except OSError:
            return ""

    # --- addresses -----------------------------------------------------------------------

    @property
    def host(self) -> str:
        return str(self.addresses["amqp"][0])

    @property
    def amqp_port(self) -> int:
        return int(self.addresses["amqp"][1])

    @property
    def ws_port(self) -> int:
        return int(self.addresses["ws"][1])

    @property
    def http_port(self) -> int:
        return int(self.addresses["http"][1])

    @property
    def metrics_port(self) -> int:
        return int(self.addresses["metrics"][1])

    @property
    def amqp_url(self) -> str:
        """For clients: guest on the vhost /."""
        return f"amqp://guest:guest@{self.host}:{self.amqp_port}/%2F"

    @property
    def ws_url(self) -> str:
        return f"ws://{self.host}:{self.ws_port}"

    @property
    def http_url(self) -> str:
        return f"http://{self.host}:{self.http_port}"

    @property
    def control_socket(self) -> Path:
        return self.data_dir / "control.sock"
