"""Which processes a start, and `ctl stop`, take for parts of the appliance."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.settings.config import Config, load
from management.ctl.main import main
from management.ctl.table import UNAVAILABLE
from management.starting import boot, lone_broker, remaining, start_of

GONE = 4_194_304  # above the highest number that a process gets
LOCKED = """
import fcntl, sys, time
lock = open(sys.argv[2], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "run").mkdir()
    return load([f"--data-dir={tmp_path}"], {"LEVERET_CONFIG": ""})


def process(code: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", code, "manage.py", *words]
    started = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.readline()
    yield started
    started.kill()
    started.communicate()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command line looks like one of the appliance."""
    yield from process("import time; print(flush=True); time.sleep(600)")


@pytest.fixture
def holder(config: Config) -> Iterator[subprocess.Popen[bytes]]:
    """One that has the data directory locked, too."""
    yield from process(LOCKED, str(config.data_dir / "lock"))


def note(config: Config, **facts: Any) -> None:
    config.addresses_file.write_text(json.dumps(facts))


def test_a_child_that_still_ends_is_waited_for(
    config: Config, stranger: subprocess.Popen[bytes]
) -> None:
    pids = {"supervisor": GONE, "broker": stranger.pid}
    note(config, pid=pids, started={"broker": start_of(stranger.pid)}, boot=boot())
    assert remaining(config) == {"broker": stranger.pid}


def test_a_process_that_has_got_the_number_of_a_child_is_none(
    config: Config, stranger: subprocess.Popen[bytes]
) -> None:
    pids = {"supervisor": GONE, "broker": stranger.pid}
    note(config, pid=pids, started={"broker": (start_of(stranger.pid) or 0) - 1}, boot=boot())
    assert remaining(config) == {}


def test_a_note_from_before_the_machine_started_names_no_process(
    config: Config, stranger: subprocess.Popen[bytes]
) -> None:
    pids = {"supervisor": GONE, "broker": stranger.pid}
    note(config, pid=pids, started={"broker": start_of(stranger.pid)}, boot="another")
    assert remaining(config) == {}


def test_a_start_does_not_wait_for_itself(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    note(config, pid={"supervisor": GONE, "broker": os.getpid()})
    monkeypatch.setattr("management.starting.PROGRAMS", (Path(sys.executable).name.encode(),))
    assert remaining(config) == {}


def test_stop_signals_no_stranger(
    config: Config, stranger: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    pid = stranger.pid
    note(config, pid={"supervisor": pid}, started={"supervisor": 1}, boot=boot())
    (config.run_dir / "broker.json").write_text(json.dumps({"pid": pid}))
    assert main(["--data-dir", str(config.data_dir), "stop"]) == UNAVAILABLE
    assert f"no broker runs on {config.data_dir}" in capsys.readouterr().err
    assert stranger.poll() is None


def test_a_broker_that_runs_alone_is_known_by_its_lock(
    config: Config, holder: subprocess.Popen[bytes], stranger: subprocess.Popen[bytes]
) -> None:
    with (config.data_dir / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    (config.run_dir / "broker.json").write_text(json.dumps({"pid": stranger.pid}))
    assert lone_broker(config) is None
    (config.run_dir / "broker.json").write_text(json.dumps({"pid": holder.pid}))
    assert lone_broker(config) == holder.pid


def test_stop_ends_what_the_supervisor_has_noted(
    config: Config, stranger: subprocess.Popen[bytes]
) -> None:
    pid = stranger.pid
    note(config, pid={"supervisor": pid}, started={"supervisor": start_of(pid)}, boot=boot())
    assert main(["--data-dir", str(config.data_dir), "stop"]) == 0
    assert stranger.wait(30) == -signal.SIGTERM
