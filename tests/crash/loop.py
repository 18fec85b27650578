"""One cycle: load, kill -9, start, load, kill -9, start, drain, compare."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.bench.client import Client, method, short
from tests.bench.leveret import REPOSITORY
from tests.crash.checker import Checker, Verdict
from tests.crash.journal import read
from tests.crash.publisher import FANOUT

QUEUES = 6
CONSUMED = ("0", "1", "2", "3")
"""Queues with a consumer under load; the others keep their backlog until the drain."""
PUBLISHERS = 4


Spawned = tuple[subprocess.Popen[bytes], Path]
"""A client process and its journal."""


class Victim(Protocol):
    """A broker that can be killed and started again on the same data."""

    port: int
    extra: list[str]

    def start(self) -> None:
        """Returns when clients can connect."""

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""

    def stop(self) -> None:
        """A clean stop."""


@dataclass
class Crash:
    """A run of many cycles on one data directory. `run` numbers the bodies, `seed` the moments;
    `clean_stops` is the share of ends by SIGTERM instead of kill -9; each start takes one of
    `options` for the broker's command line. `log` is the broker's, if it has one.
    """

    victim: Victim
    directory: Path
    run: int
    seed: int
    checker: Checker = field(default_factory=Checker)
    cycles: int = 0
    clean: int = 0
    journals: int = 0
    restart_seconds: list[float] = field(default_factory=list)
    next_sequence: Counter[int] = field(default_factory=Counter)
    clean_stops: float = 0.0
    options: list[list[str]] = field(default_factory=lambda: [[]])
    log: Path | None = None
    log_read: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.directory.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Starts the broker and declares what all cycles use."""
        self.victim.start()
        client = Client(self.victim.port)
        arguments = b"\0\0" + short(FANOUT) + short("fanout") + b"\2" + b"\0\0\0\0"
        client.send(method(1, 40, 10, arguments))
        client.wait(40, 11)
        for queue in range(QUEUES):
            client.declare_queue(f"crash.{queue}")
            bind = b"\0\0" + short(f"crash.{queue}") + short(FANOUT) + short("") + b"\0\0\0\0\0"
            client.send(method(1, 50, 20, bind))
            client.wait(50, 21)
        client.close()

    def cycle(self) -> Verdict:
        """Two kills, each followed by a start, with load before both; then the drained check."""
        for longest in (1.5, 0.5):
            self._load_and_kill(self.random.uniform(0, longest))
            self.victim.extra = self.random.choice(self.options)
            start = time.monotonic()
            self.victim.start()
            self.restart_seconds.append(time.monotonic() - start)
        self.drain()
        self.read_log()
        self.cycles += 1
        return self.checker.drained()

    def read_log(self) -> None:
        if self.log is not None:
            text = self.log.read_text(errors="replace")
            self.checker.log(text[self.log_read :])
            self.log_read = len(text)

    def _spawn(self, module: str, *arguments: object) -> Spawned:
        self.journals += 1
        journal = self.directory / f"{self.journals:06d}.{module}"
        command = [sys.executable, "-m", f"tests.crash.{module}", str(self.victim.port)]
        command += [str(self.run), *map(str, arguments), str(journal)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=REPOSITORY)
        return process, journal

    def load(
        self, publishers: int = PUBLISHERS, consumed: Sequence[str] = CONSUMED
    ) -> tuple[list[Spawned], list[Spawned]]:
        """Starts publishers and consumers; (publishers, consumers) when all are at work."""
        consumers = [
            self._spawn("consumer", self.random.randrange(1 << 30), queue) for queue in consumed
        ]
        writers = [
            self._spawn("publisher", number, self.next_sequence[number], QUEUES)
            for number in range(publishers)
        ]
        for process, _ in consumers + writers:
            assert process.stdout is not None
            process.stdout.readline()
        return writers, consumers

    def _load_and_kill(self, after: float) -> None:
        publishers, consumers = self.load()
        time.sleep(after)
        if self.random.random() < self.clean_stops:
            self.victim.stop()
            self.clean += 1
        else:
            self.victim.kill()
        self.collect(publishers, consumers)

    def collect(
        self,
        publishers: list[Spawned],
        consumers: list[Spawned],
    ) -> Counter[int]:
        """Waits for the processes and feeds their journals to the checker, publishers first."""
        got: Counter[int] = Counter()
        for number, (process, journal) in enumerate(publishers):
            process.communicate()
            if process.returncode:
                raise RuntimeError(f"publisher process failed with {process.returncode}")
            records = list(read(journal))
            self.checker.publisher_journal(records)
            for record in records:
                if record.sequence >= self.next_sequence[number]:
                    self.next_sequence[number] = record.sequence + 1
            journal.unlink()
        for process, journal in consumers:
            output, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"consumer process failed with {process.returncode}")
            last = output.decode().strip().splitlines()[-1:]
            for queue, count in json.loads(last[0] if last else "{}").items():
                got[int(queue)] += count
            self.checker.consumer_journal(read(journal))
            journal.unlink()
        return got

    def _depths(self) -> list[int]:
        client = Client(self.victim.port)
        depths = [client.declare_queue(f"crash.{i}", passive=True) for i in range(QUEUES)]
        client.close()
        return depths

    def drain(self) -> None:
        """Reads every queue to its end, and compares the depth that was told with what came."""
        told = self._depths()
        got: Counter[int] = Counter()
        for _ in range(20):
            seeds = [2 * self.random.randrange(1 << 30) for _ in range(QUEUES)]  # give nothing back
            consumers = [self._spawn("consumer", seeds[queue], queue) for queue in range(QUEUES)]
            for process, _ in consumers:
                assert process.stdout is not None and process.stdin is not None
                process.stdout.readline()
                process.stdin.close()
                process.stdin = None
            got += self.collect([], consumers)
            left = self._depths()
            if not any(left):
                break
        for queue in range(QUEUES):
            self.checker.depth(queue, told[queue], got[queue] + left[queue])
            if left[queue]:
                self.checker.depth(queue, left[queue], 0)
