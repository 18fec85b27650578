"""The physical limits beside which the figures stand, measured in the same run on the same disk."""

from __future__ import annotations

import os
import resource
import socket
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SyncLimit:
    """One append of 200 bytes and fdatasync: latency (ms) and CPU (microseconds) of the caller."""

    p50_ms: float
    p99_ms: float
    cpu_us: float


def measure_sync(directory: Path, seconds: float = 2.0) -> SyncLimit:
    """Appends and syncs a file in `directory` for so long."""
    path = directory / "sync-probe"
    times: list[float] = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        before = _cpu(resource.RUSAGE_SELF)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter()
            os.write(descriptor, bytes(200))
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
        cpu = _cpu(resource.RUSAGE_SELF) - before
    finally:
        os.close(descriptor)
        path.unlink()
    times.sort()
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    return SyncLimit(statistics.median(times) * 1e3, p99 * 1e3, cpu / len(times) * 1e6)


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def measure_relay(seconds: float = 1.0) -> float:
    """CPU seconds per byte of a process that only reads one TCP socket and writes another."""
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        _relay(listener)
        os._exit(0)
    source = socket.create_connection(listener.getsockname())
    sink = socket.create_connection(listener.getsockname())
    listener.close()
    moved = 0

    def drain() -> None:
        nonlocal moved
        buffer = bytearray(1 << 18)
        while count := sink.recv_into(buffer):
            moved += count

    reader = threading.Thread(target=drain)
    reader.start()
    block = bytes(1 << 16)
    end = time.monotonic() + seconds
    before = _cpu(resource.RUSAGE_CHILDREN)
    while time.monotonic() < end:
        source.sendall(block)
    source.shutdown(socket.SHUT_WR)
    reader.join()
    os.waitpid(pid, 0)
    source.close()
    sink.close()
    return (_cpu(resource.RUSAGE_CHILDREN) - before) / moved


def _relay(listener: socket.socket) -> None:
    source, _ = listener.accept()
    sink, _ = listener.accept()
    buffer = bytearray(1 << 18)
    view = memoryview(buffer)
    while count := source.recv_into(buffer):
        sink.sendall(view[:count])
    sink.shutdown(socket.SHUT_WR)
