"""What /proc tells about a process and its children: who they are, CPU seconds, resident bytes."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def stat_fields(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state (field 3 of proc(5)) on; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def family(pid: int) -> list[int]:
    """The process and all its living descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat_fields(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        if stat_fields(current):
            found.append(current)
        waiting += parents.get(current, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes, all their threads included."""
    total = 0
    for pid in pids:
        if fields := stat_fields(pid):
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def thread_seconds(pids: list[int]) -> float:
    """What the threads that these processes have now took, to the nanosecond: for small
    shares of a core, of which `cpu_seconds` sees few ticks."""
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_bytes(pids: list[int], kind: str = "VmRSS") -> int:
    """Sum of VmRSS (or another kB line of /proc/<pid>/status, such as RssAnon) in bytes."""
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith(kind + ":"):
                total += int(line.split()[1]) * 1024
    return total


def settled_bytes(pids: list[int]) -> int:
    """Anonymous resident bytes once three readings are equal to 64 KiB, at most 5 s."""
    readings: list[int] = []
    for _ in range(25):
        readings.append(resident_bytes(pids, "RssAnon"))
        if len(readings) >= 3 and max(readings[-3:]) - min(readings[-3:]) < 65536:
            break
        time.sleep(0.2)
    return readings[-1]


def free_port() -> int:
    """A port on loopback that is free now. It is none of those that the system chooses from for
    connections and for listeners without a port, so that no other program takes it by chance
    while its listener is closed."""
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    first, last = map(int, text.split())
    others = [*range(10_000, first), *range(last + 1, 65_536)] or range(1_024, 65_536)
    while True:
        port = random.SystemRandom().choice(others)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def end(process: subprocess.Popen[bytes], patience: float = 20.0) -> None:
    """Ends a process started here and its descendants: SIGTERM, then SIGKILL after `patience` s."""
    members = family(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pid in members:
        deadline = time.monotonic() + 5
        while pid != process.pid and stat_fields(pid) and stat_fields(pid)[0] != "Z":
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.05)
