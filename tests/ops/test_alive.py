"""What the supervisor takes for a process that hangs, and how processes show that they do not."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.process import lifetime, pulse
from management.alive import LOOK_S, Watch, waits_for_disk
from tests.appliance import LIFETIME, NEVER, PROGRAM, ROOT

STILL_LOOKS = 6


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch(STILL_LOOKS * LOOK_S)
    yield made
    made.close()


def test_a_process_hangs_when_look_after_look_finds_no_sign(watch: Watch) -> None:
    assert not any(watch.hangs() for _ in range(2 * STILL_LOOKS)), "it is being started"
    os.write(watch.write, b"\0\0")
    assert [watch.hangs() for _ in range(STILL_LOOKS + 1)] == [False] * STILL_LOOKS + [True]


def test_a_process_that_gives_signs_does_not_hang(watch: Watch) -> None:
    for _ in range(3):
        os.write(watch.write, b"\0")
        assert not any(watch.hangs() for _ in range(STILL_LOOKS))


def test_a_process_that_ends_gives_no_further_sign(watch: Watch) -> None:
    os.write(watch.write, b"\0")
    watch.handed_over()
    assert [watch.hangs() for _ in range(STILL_LOOKS + 1)] == [False] * STILL_LOOKS + [True]


def test_signs_are_given_again_and_again_and_never_wait(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pulse.VARIABLE, str(watch.write))
    due: list[tuple[float, Callable[[], None]]] = []
    pulse.begin(lambda after, beat: due.append((after, beat)))
    assert pulse.VARIABLE not in os.environ
    assert not os.get_inheritable(watch.write)
    for _ in range(100_000):  # more than the pipe holds
        ((after, beat),) = due
        assert after == pulse.BEAT_S
        due.clear()
        beat()
    assert not watch.hangs()


def test_a_process_started_alone_gives_no_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pulse.VARIABLE, raising=False)
    due: list[object] = []
    pulse.begin(lambda *call: due.append(call))
    assert due == []


@pytest.mark.parametrize("part", ["broker", "web", "reports", "tiers", "bridges"])
def test_each_part_of_the_appliance_gives_signs(part: str, tmp_path: Path) -> None:
    signs, gives = os.pipe()
    data = tmp_path / "data"
    (data / "run").mkdir(parents=True)
    options = ["--amqp-port=0", "--ws-port=0", "--http-port=0", "--metrics-port=-1"]
    options += [f"--reports-schedule={NEVER}", f"--data-dir={data}", "--disk-reserve=0"]
    process = subprocess.Popen(
        [*PROGRAM, part, *options],
        cwd=ROOT,
        env={
            **os.environ,
            "LEVERET_CONFIG": "",
            pulse.VARIABLE: str(gives),
            lifetime.VARIABLE: str(LIFETIME[0]),
        },
        pass_fds=[gives, LIFETIME[0]],
        start_new_session=True,
    )
    os.close(gives)
    try:
        assert select.select([signs], [], [], 60)[0]
        assert os.read(signs, 1) == b"\0", "it has ended"
    finally:
        process.kill()
        process.wait()
        os.close(signs)


def test_a_process_that_waits_in_the_kernel_is_known() -> None:
    """A disk that does not answer cannot be had here; who waits for the end of a vfork waits like
    that."""
    assert not waits_for_disk(os.getpid())
    code = "import ctypes, time; ctypes.CDLL(None).vfork() or time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not waits_for_disk(process.pid):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
