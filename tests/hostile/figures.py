"""What an attack costs the attacked process, from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def wait_idle(pid: int, seconds: float = 180.0) -> None:
    """Waits until a process has used no CPU for half a second."""
    deadline = time.monotonic() + seconds
    before = -1.0
    while (now := cpu_seconds(pid)) - before > 0.02:
        assert time.monotonic() < deadline, f"process {pid} is still busy after {seconds} s"
        before = now
        time.sleep(0.5)


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM."""
    return _memory(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had in RAM, or since `forget_peak`."""
    return _memory(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """From now on `peak_bytes` tells of what comes (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _memory(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(field)


def descended(pid: int) -> float:
    """User and system time of a process's ended children, and of theirs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS


def unread(port: int, peer: int) -> int:
    """Bytes that the kernel holds for the client at port `peer` of this machine, sent by what
    listens at `port` (proc(5), /proc/net/tcp)."""
    wanted = f":{port:04X}", f":{peer:04X}"
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = row.split()
        if (local[-5:], remote[-5:]) == wanted:
            return int(queues.partition(":")[0], 16)
    return 0
