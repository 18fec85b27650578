"""What the process uses of the machine: memory, processor, descriptors, disk. Linux's /proc.

Reading waits for the file system, so the server calls `read_node` in a thread.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class NodeReading(NamedTuple):
    """Bytes, counts and seconds, as of `at` (ms since 1970)."""

    at: int = 0
    mem_used: int = 0
    mem_limit: int = 0
    """Memory of the machine, or of the control group if that is less."""
    disk_free: int = 0
    disk_total: int = 0
    fd_used: int = 0
    fd_total: int = 0
    cpu_seconds: float = 0.0
    load_average: float = 0.0
    processors: int = 1


def read_node(data_dir: Path) -> NodeReading:
    """A reading of this process and of the file system that holds the data directory."""
    space = os.statvfs(data_dir)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NodeReading(
        at=time.time_ns() // 1_000_000,
        mem_used=resident_memory(),
        mem_limit=memory_limit(),
        disk_free=space.f_bavail * space.f_frsize,
        disk_total=space.f_blocks * space.f_frsize,
        fd_used=open_descriptors(),
        fd_total=soft,
        # os.times() counts in ticks of 10 ms: a broker that uses 0.5 % would show 0 or 1 %.
        cpu_seconds=time.process_time(),
        load_average=os.getloadavg()[0],
        processors=os.cpu_count() or 1,
    )


def open_descriptors() -> int:
    """Files and sockets that this process has open."""
    # Linux 6.2 and later tell their number; before, it is 0 here, and to list 10,000 takes 20 ms.
    directory = Path("/proc/self/fd")
    return directory.stat().st_size or sum(1 for _ in directory.iterdir())


def resident_memory() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of memory of the machine, or of the control groups that this process is in if one of
    them allows less: a service manager limits one further down than the root."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    place = PurePosixPath(_own_group(own).strip("/"))
    limits = [_group_limit(groups / above) for above in (place, *place.parents)]
    return min([machine, *(limit for limit in limits if limit is not None)])


def _own_group(own: Path) -> str:
    """Where this process is in the tree of control groups (v2)."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return ""
    found = next((line[3:] for line in lines if line.startswith("0::")), "")
    # Of a process that is outside of the tree that is visible here.
    return "" if ".." in PurePosixPath(found).parts else found


def _group_limit(group: Path) -> int | None:
    try:
        text = (group / "memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
