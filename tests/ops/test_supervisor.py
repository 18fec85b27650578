"""The supervisor over children that pretend; the real ones are in test_appliance."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from management.reports.placement import is_locked
from management.supervisor import catches_hangup

FAKE = Path(__file__).parent / "fake" / "manage.py"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, **behaviour: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "LEVERET_TEST_FAKE": json.dumps(behaviour)}
        process = subprocess.Popen(
            [sys.executable, str(FAKE), "serve", "--data-dir", str(tmp_path / "d"), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def until_ready(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if "ready" in line:
            return seen
    raise AssertionError(f"never ready:\n{seen}")


def until_started(tmp_path: Path) -> None:
    """Wait until all five have set themselves up; of some, `ready` says nothing."""
    deadline = time.monotonic() + 60
    while not (tmp_path / "d" / "life").exists() or len(life(tmp_path)) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pids(tmp_path: Path) -> dict[str, int]:
    note: dict[str, Any] = json.loads((tmp_path / "d" / "run" / "addresses.json").read_text())
    found: dict[str, int] = note["pid"]
    return found


def is_running(pid: int) -> bool:
    """Whether the process runs; one that only waits for its parent to look does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pid: int, timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def life(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "d" / "life").read_text().splitlines()
    return [" ".join(line.split()[:2]) for line in lines]


def test_it_prints_every_address_and_then_one_line_with_ready(start: Start) -> None:
    printed = until_ready(start())
    assert "amqp://127.0.0.1:1" in printed
    assert "http://127.0.0.1:2/" in printed
    assert "guest / guest" in printed
    assert printed.splitlines()[-1].startswith("ready in ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_its_children_in_order(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start()
    until_ready(process)
    until_started(tmp_path)
    process.send_signal(number)
    assert process.wait(60) == 0
    order = ["bridges", "reports", "tiers", "web", "broker"]
    assert life(tmp_path)[-5:] == [f"{name} stopped" for name in order]
    assert list((tmp_path / "d" / "run").iterdir()) == []


def test_it_leaves_nothing_running_when_it_is_killed(start: Start, tmp_path: Path) -> None:
    process = start(reports=["child"])
    until_ready(process)
    until_started(tmp_path)
    children = pids(tmp_path)
    grandchild = int((tmp_path / "d" / "grandchild").read_text())
    process.kill()
    for pid in (children["broker"], children["web"], children["reports"], grandchild):
        wait_gone(pid)


def test_it_kills_deaf_children_after_its_own_death(start: Start, tmp_path: Path) -> None:
    process = start("--stop-timeout=1", broker=["deaf"], reports=["deaf", "child"])
    until_ready(process)
    until_started(tmp_path)
    children = pids(tmp_path)
    grandchild = int((tmp_path / "d" / "grandchild").read_text())
    process.kill()
    for pid in (children["broker"], children["reports"], grandchild):
        wait_gone(pid)


def test_it_starts_again_at_once_after_it_was_killed(start: Start, tmp_path: Path) -> None:
    first = start()
    until_ready(first)
    first.kill()
    assert "ready" in until_ready(start())


def test_it_leaves_the_directory_free_for_a_part_that_still_ends(
    start: Start, tmp_path: Path
) -> None:
    """The reports part looks at the lock to see whether there is a broker to wait for."""
    first = start("--stop-timeout=60", reports=["deaf"])
    until_ready(first)
    until_started(tmp_path)
    left = pids(tmp_path)
    first.kill()
    for name in ("broker", "web", "tiers", "bridges"):
        wait_gone(left[name])
    second = start("--stop-timeout=2")
    while second.poll() is None:
        assert not is_locked(tmp_path / "d" / "lock")
        time.sleep(0.01)
    os.kill(left["reports"], signal.SIGKILL)
    assert second.returncode == 75
    assert second.communicate()[0] == (
        f"leveret serve: the data directory {tmp_path / 'd'} is in use by reports (process"
        f" {left['reports']}), which an earlier start has left: it did not end within stop_timeout"
        " (2 s)\n"
    )


def test_it_kills_a_child_that_does_not_stop(start: Start, tmp_path: Path) -> None:
    process = start("--stop-timeout=1", web=["deaf"])
    until_ready(process)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert "web did not stop in time; it is killed" in output
    assert process.returncode == 1
    assert "broker stopped" in life(tmp_path)


def test_it_stops_at_once_when_asked_twice(start: Start, tmp_path: Path) -> None:
    process = start("--stop-timeout=60", broker=["deaf"], web=["deaf"], reports=["deaf"])
    until_ready(process)
    until_started(tmp_path)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1


@pytest.mark.parametrize("child", ["broker", "web", "reports", "tiers", "bridges"])
def test_it_stops_what_is_left_when_a_child_crashes_just_then(
    start: Start, tmp_path: Path, child: str
) -> None:
    process = start()
    until_ready(process)
    until_started(tmp_path)
    # Both are found at once when it goes on.
    process.send_signal(signal.SIGSTOP)
    crashed = pids(tmp_path)[child]
    os.kill(crashed, signal.SIGKILL)
    wait_gone(crashed)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    printed, _ = process.communicate(timeout=60)
    assert "Traceback" not in printed
    assert printed.endswith("stopped\n")
    assert process.returncode == 1
    assert list((tmp_path / "d" / "run").iterdir()) == []


def test_it_takes_along_what_a_child_left_running(start: Start, tmp_path: Path) -> None:
    process = start(reports=["child"])
    until_ready(process)
    until_started(tmp_path)
    grandchild = int((tmp_path / "d" / "grandchild").read_text())
    process.terminate()
    assert process.wait(60) == 0
    wait_gone(grandchild)


def test_it_starts_a_crashed_child_again(start: Start, tmp_path: Path) -> None:
    process = start()
    until_ready(process)
    before = pids(tmp_path)["web"]
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while life(tmp_path).count("web started") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert "web ended with signal 9; it is started again in 0.5 s" in output


def until_lived(tmp_path: Path, line: str, times: int = 1) -> None:
    deadline = time.monotonic() + 60
    while life(tmp_path).count(line) < times:
        assert time.monotonic() < deadline, life(tmp_path)
        time.sleep(0.01)


@pytest.mark.parametrize("child", ["broker", "web", "reports", "tiers", "bridges"])
def test_it_kills_a_child_that_hangs_and_starts_it_again(
    start: Start, tmp_path: Path, child: str
) -> None:
    process = start(**{child: ["hangs"]})
    output = until_ready(process)  # on a slow machine it may hang long enough before that
    until_started(tmp_path)
    until_lived(tmp_path, f"{child} started", 2)
    process.terminate()
    output += process.communicate(timeout=60)[0]
    assert f"{child} has hung for" in output
    assert f"{child} ended with signal 9; it is started again in 0.5 s" in output


def test_it_does_not_kill_a_child_that_is_not_ready(start: Start, tmp_path: Path) -> None:
    """A broker may import many definitions at its start."""
    process = start(broker=["hangs", "silent"], bridges=["hangs"])
    until_started(tmp_path)
    # Both have given their last sign; the failed start of the one ends the appliance.
    output, _ = process.communicate(timeout=60)
    assert "bridges has hung for" in output
    assert "broker has hung for" not in output


def test_it_goes_on_while_it_cannot_write_the_addresses(start: Start, tmp_path: Path) -> None:
    obstacle = tmp_path / "d" / "run" / "addresses.new"
    obstacle.mkdir(parents=True)
    process = start()
    output = until_ready(process)
    until_started(tmp_path)
    assert output.count("addresses.json: Is a directory; it is tried again") == 1
    obstacle.rmdir()
    deadline = time.monotonic() + 60
    while not (tmp_path / "d" / "run" / "addresses.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60) == 0


def test_it_starts_a_child_later_when_the_machine_has_no_room_for_it(
    start: Start, tmp_path: Path
) -> None:
    process = start()
    until_ready(process)
    until_started(tmp_path)
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    os.kill(pids(tmp_path)["web"], signal.SIGKILL)
    assert process.stdout is not None
    assert "web ended with signal 9" in process.stdout.readline()
    line = process.stdout.readline()
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
    assert "cannot start web: Too many open files; it is tried again in 1 s" in line
    until_lived(tmp_path, "web started", 2)
    process.terminate()
    assert process.wait(60) == 0


def test_a_child_in_its_start_reads_the_settings_again_as_soon_as_it_can(
    start: Start, tmp_path: Path
) -> None:
    process = start(broker=["late"], bridges=["late"])
    until_ready(process)
    until_started(tmp_path)
    children = pids(tmp_path)
    os.kill(children["bridges"], signal.SIGUSR1)
    deadline = time.monotonic() + 60
    while not catches_hangup(children["bridges"]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    # The supervisor has come to the broker before the bridges.
    until_lived(tmp_path, "bridges reloaded")
    os.kill(children["broker"], signal.SIGUSR1)
    until_lived(tmp_path, "broker reloaded")


def test_it_keeps_the_port_that_a_crashed_child_had(start: Start, tmp_path: Path) -> None:
    process = start("--amqp-port=0")
    until_ready(process)
    os.kill(pids(tmp_path)["broker"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while life(tmp_path).count("broker started") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    last = (tmp_path / "d" / "life").read_text().splitlines()[-1]
    assert last.endswith("--amqp-port=0 --amqp-port 1")


def test_it_ends_with_the_status_of_a_child_that_cannot_start(start: Start) -> None:
    process = start(web=["exit=69"])
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 69
    assert "ready" not in output


def test_it_says_which_child_crashed_at_its_start(start: Start) -> None:
    process = start(broker=["exit=1"])
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "broker ended at its start with status 1" in output


def test_it_leaves_a_broker_down_whose_sync_failed(start: Start, tmp_path: Path) -> None:
    process = start(broker=["sync fails"])
    until_ready(process)
    os.kill(pids(tmp_path)["broker"], signal.SIGUSR1)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "a sync failed and stays down" in line
    os.kill(pids(tmp_path)["web"], 0)
    process.terminate()
    assert process.wait(60) == 74
    assert life(tmp_path).count("broker started") == 1


def test_it_refuses_a_data_directory_in_use(start: Start, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with (tmp_path / "d" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        output, _ = (process := start()).communicate(timeout=60)
    assert process.returncode == 75
    assert output == (
        f"leveret serve: the data directory {tmp_path / 'd'} is in use by a running broker\n"
    )


def test_it_refuses_a_data_directory_that_cannot_be_made(start: Start, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("a file")
    output, _ = (process := start()).communicate(timeout=60)
    assert process.returncode == 73
    assert len(output.splitlines()) == 1
    assert "cannot use" in output


def test_it_can_be_stopped_while_it_starts(start: Start, tmp_path: Path) -> None:
    process = start(broker=["silent"])
    until_started(tmp_path)
    process.terminate()
    assert process.wait(60) == 0
