"""What is freed leaves the process, though the C library would keep it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp.raw import Client
from tests.appliance import ROOT, Appliance

HASH_KB = 19 * 1024
"""What one argon2id hash of a password takes."""

IN_A_THREAD = f"""
import sys, threading
from broker.process import allocator

def private_kb():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1])

for call in sys.argv[1:]:
    getattr(allocator, call)()
before = private_kb()

def use():
    b"x" * ({HASH_KB} << 10)  # from now on the library's own bound is above it
    b"x" * ({HASH_KB} << 10)

thread = threading.Thread(target=use)
thread.start()
thread.join()
allocator.give_memory_back()
print(private_kb() - before)
"""


def kept_kb(*calls: str) -> int:
    """Memory that a thread took and freed and that its process holds, after these calls."""
    command = [sys.executable, "-c", IN_A_THREAD, *calls]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout)


@pytest.mark.parametrize("calls", [["map_large_blocks"], ["share_one_heap"]])
def test_a_process_gives_back_what_its_threads_freed(calls: list[str]) -> None:
    assert kept_kb(*calls) < HASH_KB / 4


def private_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Appliance]:
    broker = Appliance("broker", tmp_path)
    broker.start()
    yield broker
    broker.close()


def test_the_broker_keeps_no_memory_of_the_hash_of_a_password(broker: Appliance) -> None:
    before = private_kb(broker.pids["broker"])
    for _ in range(3):
        with Client.open((broker.host, broker.amqp_port)) as client:
            client.fence(1)
    deadline = time.monotonic() + 30
    while private_kb(broker.pids["broker"]) - before > HASH_KB // 2:
        assert time.monotonic() < deadline, "the memory of a hash stays"
        time.sleep(0.05)
