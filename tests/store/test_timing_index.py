"""Damaged and half-written runs of the timing index: delayed messages come all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.fields import properties
from tests.crash.inside import Inside, publish
from tests.crash.profiles import Profile

SHORT_RUNS = Profile("short runs", run_of=2)
LATER = properties.encode({"delivery_mode": 2, "headers": {"x-delay": 1}})


def a_run(directory: Path) -> Path:
    """The only run of an index, of two delayed messages, after a kill."""
    inside = Inside(directory, profile=SHORT_RUNS).start()
    inside.vhost.declare_queue("late", durable=True)
    inside.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    inside.vhost.bind("later", "late", "queue", "")
    inside.make_runs_short()
    for body in (b"one", b"two"):
        publish(inside.vhost, "later", "", LATER, body)
    inside.tick()
    inside.kill()
    (run,) = directory.rglob("due.*")
    return run


def start_again(directory: Path) -> tuple[list[str], list[bytes | None]]:
    """What a start says, and what is delivered when all is due."""
    inside = Inside(directory, profile=SHORT_RUNS).start()
    inside.pump(lambda: inside.ring() is None and not inside.held)
    inside.sync()
    bodies = [taker.body for taker in inside.drain("late")]
    inside.kill()
    return inside.problems, bodies


@pytest.mark.parametrize("length", [0, 5, 31, 40])
def test_a_run_that_a_kill_cut_short_is_no_damage(tmp_path: Path, length: int) -> None:
    run = a_run(tmp_path / "data")
    run.write_bytes(run.read_bytes()[:length])
    problems, bodies = start_again(tmp_path / "data")
    assert problems == []
    assert sorted(body or b"" for body in bodies) == [b"one", b"two"]


@pytest.mark.parametrize("position", [0, 12, -1])
def test_a_damaged_run_is_told_of(tmp_path: Path, position: int) -> None:
    run = a_run(tmp_path / "data")
    data = bytearray(run.read_bytes())
    data[position] ^= 1
    run.write_bytes(data)
    problems, bodies = start_again(tmp_path / "data")
    assert len(problems) == 1
    assert f"{run} is damaged; its messages are scheduled anew" in problems[0]
    assert sorted(body or b"" for body in bodies) == [b"one", b"two"]


def test_what_the_index_knows_and_the_log_lost_is_waited_for_no_more(tmp_path: Path) -> None:
    run = a_run(tmp_path / "data")
    (log,) = tmp_path.glob("data/vhosts/*/delayed/*/msgs.*")
    data = log.read_bytes()
    # Both records have one length, behind the header of 8 bytes.
    log.write_bytes(data[: 8 + (len(data) - 8) // 2])
    problems, bodies = start_again(tmp_path / "data")
    assert bodies == [b"one"]
    assert problems == []
    assert not run.exists()
