"""The appliance under the soak: what `tests.crash.loop` needs of a broker, and its quiet points."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.fuzz.runs import delete_all
from tests.hostile.figures import cpu_seconds
from tests.turns import TurnMeter

MEMORY_SHARE = 0.02
MEMORY_BYTES = 8 << 20
PROCESSES = ("supervisor", "broker", "web", "reports")
BUSY_SHARE = 0.25
"""CPU seconds a second above which a process is not quiet."""
OF_TIME = ("usage", "history", "reports", "run")
"""Directories whose files come and go by the clock; they are counted apart."""


class Whole:
    """Broker, web app and reports. `kill` kills the broker alone, and the supervisor starts it
    again; its ports stay."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.appliance = Appliance(
            *("serve", directory),
            segment_size="1MiB",
            body_file_size="4MiB",
            log_level="warning",
        )
        self.meter = TurnMeter(self.appliance)
        self.extra: list[str] = []
        self.starts = 0

    @property
    def port(self) -> int:
        return self.appliance.amqp_port

    @property
    def output(self) -> Path:
        return self.appliance.log_file

    def start(self) -> None:
        """Starts it, or waits until a killed broker is back."""
        self.starts += 1
        if self.appliance.process is None:
            self.appliance.start()
            self.meter.forget()
            return
        killed = self.appliance.pids["broker"]
        deadline = time.monotonic() + 120
        while True:
            self.appliance._read_addresses()
            if self.appliance.pids["broker"] != killed and self._answers():
                self.meter.forget()  # a start is no turn of its work
                return
            assert time.monotonic() < deadline, self.appliance.log()[-4000:]
            time.sleep(0.1)

    def _answers(self) -> bool:
        async def ask() -> None:
            client = BrokerClient(self.appliance.control_socket)
            try:
                await asyncio.wait_for(client.call("overview"), 10)
            finally:
                await client.close()

        try:
            asyncio.run(ask())
        except Exception:
            return False
        return True

    def kill(self) -> None:
        """kill -9 of the broker."""
        os.kill(self.appliance.pids["broker"], signal.SIGKILL)

    def stop(self) -> None:
        self.appliance.stop()

    def tidy(self) -> None:
        """Deletes all that clients have made, except the queues whose messages are checked."""
        delete_all(self.appliance, lambda name: name.startswith("crash."))


@dataclass(frozen=True)
class Quiet:
    """What there is at a quiet point: memory in bytes and descriptors of each process, files of
    the store, and those that the clock makes."""

    at: float
    start: int
    memory: dict[str, int]
    descriptors: dict[str, int]
    files: int
    files_of_time: int

    def __str__(self) -> str:
        memory = " ".join(f"{name} {size / 2**20:.1f}" for name, size in self.memory.items())
        descriptors = " ".join(f"{name} {count}" for name, count in self.descriptors.items())
        return (
            f"quiet at {self.at:5.0f} s (start {self.start}): MiB {memory}; descriptors "
            f"{descriptors}; files {self.files} and {self.files_of_time} of time"
        )

    def grown(self, first: Quiet) -> list[str]:
        """What is more than at an earlier quiet point of the same start, beyond what may be."""
        wrong = []
        for name, size in self.memory.items():
            most = first.memory[name] * (1 + MEMORY_SHARE) + MEMORY_BYTES
            if size > most:
                wrong.append(
                    f"{name} has {size / 2**20:.1f} MiB at {self.at:.0f} s, had "
                    f"{first.memory[name] / 2**20:.1f} at {first.at:.0f} s"
                )
        for name, count in self.descriptors.items():
            if count != first.descriptors[name]:
                before = first.descriptors[name]
                wrong.append(f"{name} has {count} descriptors at {self.at:.0f} s, had {before}")
        if self.files != first.files:
            wrong.append(f"{self.files} files at {self.at:.0f} s, were {first.files}")
        return wrong


def look(whole: Whole, begun: float, rest: float) -> Quiet:
    """Waits until nothing happens any more, then `rest` seconds for what gives back after a while,
    and looks."""
    pids = {name: whole.appliance.pids[name] for name in PROCESSES}
    deadline = time.monotonic() + 120
    while True:
        before = sum(cpu_seconds(pid) for pid in pids.values())
        time.sleep(1)
        used = sum(cpu_seconds(pid) for pid in pids.values()) - before
        if used < BUSY_SHARE or time.monotonic() > deadline:
            break
    time.sleep(rest)
    data = whole.appliance.data_dir
    # Not Path.rglob, which fails where a directory goes meanwhile, as those of a report do.
    below = [Path(parent, name) for parent, _, files in os.walk(data) for name in files]
    names = [path.relative_to(data).parts[0] for path in below if path.is_file()]
    return Quiet(
        time.monotonic() - begun,
        whole.starts,
        {name: _anonymous(pid) for name, pid in pids.items()},
        {name: sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) for name, pid in pids.items()},
        sum(name not in OF_TIME for name in names),
        sum(name in OF_TIME for name in names),
    )


def _anonymous(pid: int) -> int:
    """Memory of a process that is no file's: what it has asked for and not given back."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
