"""A broker or an appliance that is forked for a test is as one that is started, and ends so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.appliance import Appliance, NotReadyError

Make = Callable[..., Appliance]
READY = ("supervisor", "broker", "web")
"""Parts that have done all that begins a process when an appliance is ready."""
STATUS = ("Umask", "SigBlk", "SigIgn", "CapEff")


def shown(appliance: Appliance, part: str) -> dict[str, Any]:
    """What the kernel shows of a process."""
    pid = appliance.pids[part]
    place = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    return {
        "parent": int(status["PPid"]) in (os.getpid(), appliance.pids.get("supervisor")),
        "session": os.getsid(pid) == os.getpgid(pid) == pid,
        "directory": (place / "cwd").readlink(),
        "input": (place / "fd" / "0").readlink(),
        "errors": (place / "fd" / "2").readlink() == appliance.log_file,
        "limits": (place / "limits").read_text(),
        "priority": os.getpriority(os.PRIO_PROCESS, pid),
        **{name: status[name].strip() for name in STATUS},
    }


def parts_of(make: Make, monkeypatch: pytest.MonkeyPatch, *, forked: bool) -> dict[str, Any]:
    monkeypatch.setattr(forks, "allowed", forked)
    appliance = make()
    assert isinstance(appliance.process, forks.Forked) == forked
    return {part: shown(appliance, part) for part in READY if part in appliance.pids}


def test_a_forked_appliance_has_what_a_started_one_has(
    make_leveret: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = parts_of(make_leveret, monkeypatch, forked=False)
    assert parts_of(make_leveret, monkeypatch, forked=True) == started
    assert started["broker"]["parent"] and started["web"]["session"]


def test_a_forked_broker_has_what_a_started_one_has(
    make_broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = parts_of(make_broker, monkeypatch, forked=False)
    assert parts_of(make_broker, monkeypatch, forked=True) == started


@pytest.mark.parametrize("forked", [True, False], ids=["forked", "started"])
def test_a_process_of_a_test_tells_how_it_ended(
    make_broker: Make, monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    monkeypatch.setattr(forks, "allowed", forked)
    broker = make_broker()
    process = broker.process
    assert process is not None and process.poll() is None
    broker.kill()
    assert process.returncode == -signal.SIGKILL
    assert broker.start().stop() == 0
    broker.settings["segment_size"] = "much"
    with pytest.raises(NotReadyError, match=f"ended with {os.EX_CONFIG}(?s:.)*segment"):
        broker.start()
