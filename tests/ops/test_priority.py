"""The broker comes before the other parts, for the kernel too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.appliance import ROOT, Appliance

GROUPS = Path("/proc/self/autogroup").exists()


def niceness(pid: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, pid)


def session_niceness(pid: int) -> int:
    """Of the session of a process: `/autogroup-17 nice 5`."""
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


def test_pages_and_reports_stay_behind_the_broker(shared_leveret: Appliance) -> None:
    pids = shared_leveret.pids
    own = niceness(pids["broker"])
    assert own == niceness(pids["supervisor"])
    assert niceness(pids["web"]) == min(own + 5, 19)
    assert niceness(pids["reports"]) == min(own + 10, 19)


@pytest.mark.skipif(not GROUPS, reason="this kernel does not group processes by session")
def test_so_do_their_sessions(shared_leveret: Appliance) -> None:
    pids = shared_leveret.pids
    assert session_niceness(pids["broker"]) == 0
    assert session_niceness(pids["web"]) == 5
    assert session_niceness(pids["reports"]) == 10


STARTER = """
import subprocess, sys
from management import priority
{first}
print(open('/proc/self/autogroup').read().split()[-1], flush=True)
subprocess.run([sys.executable, '-c', '''
import os
from management import priority
priority.give_way_as_parent()
print(open('/proc/self/autogroup').read().split()[-1], os.getpriority(os.PRIO_PROCESS, 0))
'''], start_new_session={new})
"""


@pytest.mark.skipif(not GROUPS, reason="this kernel does not group processes by session")
@pytest.mark.parametrize(
    ("first", "is_new", "printed"),
    [
        ("priority.give_way(3)", True, "3 3 {}"),
        ("priority.give_way(0)", True, "0 0 {}"),
        # Its session is that of others: the broker may be one of them.
        ("priority.give_way(3)", False, "0 0 {}"),
    ],
)
def test_a_session_of_its_own_gives_way_and_no_other(
    first: str, is_new: bool, printed: str
) -> None:
    code = STARTER.format(first=first, new=is_new)
    command = [sys.executable, "-c", code]
    if not is_new:
        command = ["sh", "-c", 'cd . && "$0" -c "$1"; exit $?', sys.executable, code]
    own = niceness(0)
    out = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, start_new_session=True
    ).stdout.split()
    steps = 3 if "3" in first else 0
    assert out == printed.format(min(own + steps, 19)).split()
