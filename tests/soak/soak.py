"""One soak: phases of load and attacks, each ended at a quiet point."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from management.broker_client import BrokerClient
from tests.crash.checker import Verdict
from tests.crash.loop import CONSUMED, Crash
from tests.crash.storm import EVERYTHING, Storm, connect, declare, with_channel
from tests.reports.asking import run_report
from tests.soak import attackers, clients
from tests.soak.whole import Quiet, Whole, look

REPORT_SECONDS_MAX = 900.0
"""Spark takes a minute; beside other work that fills the processors it took more than four."""


@dataclass
class Soak:
    """One soak on an empty directory. `go` is called once; times are in seconds."""

    directory: Path
    seconds: float
    seed: int
    phase: float = 60.0
    rest: float = 16.0
    reports_every: int = 6
    """Phases between two runs of a report; 0 for none."""
    trouble: list[str] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    attacks: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    quiet: list[Quiet] = field(default_factory=list)
    kills: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.whole = Whole(self.directory)

    def go(self) -> Verdict:
        whole = self.whole
        victim: Any = whole
        crash = Crash(victim, self.directory / "journals", self.seed, self.seed)
        crash.prepare()
        crash.log = whole.output
        begun = time.monotonic()
        number = 0
        verdict = crash.checker.verdict
        while time.monotonic() - begun < self.seconds or not number:
            passed = time.monotonic() - begun
            last = passed + self.phase + self.rest > self.seconds
            kill = last or (passed < self.seconds / 3 and number % 2 == 1)
            self._phase(crash, kill)
            crash.drain()
            crash.read_log()
            verdict = crash.checker.drained()
            if self.reports_every and number % self.reports_every == 1:
                self._report()
            whole.tidy()
            self.quiet.append(look(whole, begun, self.rest))
            print(f"{self.quiet[-1]}", flush=True)
            number += 1
        self._judge()
        return verdict

    def _phase(self, crash: Crash, kill: bool) -> None:
        """Load and attacks for the time of a phase, with a kill in the middle or none."""
        whole = self.whole
        asyncio.run(self._make_mallory())
        with_channel(whole.port, declare)
        over = threading.Event()
        storm = Storm(whole, self.phase, self.random.randrange(1 << 30))  # type: ignore[arg-type]
        storm.over = over
        works: list[tuple[Any, tuple[Any, ...]]] = [
            (storm._safely, (work,)) for work in (storm._publish, storm._consume, self._probe)
        ]
        works.append((self._operate, (storm, over)))
        works += [
            (
                clients.run,
                (work, whole.appliance, over, self.seed, self.count, self.trouble),
            )
            for work in clients.KINDS
        ]
        works += [
            (
                attackers.run,
                (name, whole.appliance, over, self.seed + len(self.quiet), self.attacks),
            )
            for name in attackers.KINDS
        ]
        threads = [
            threading.Thread(target=work, args=arguments, daemon=True) for work, arguments in works
        ]
        load = crash.load(publishers=2, consumed=CONSUMED[:2])
        for thread in threads:
            thread.start()
        time.sleep(self.phase / 2)
        if kill:
            self.kills += 1
            whole.kill()
            whole.start()
            crash.collect(*load)
            load = crash.load(publishers=2, consumed=CONSUMED[:2])
        time.sleep(self.phase / 2)
        over.set()
        for thread in threads:
            thread.join(120)
            if thread.is_alive():
                self.trouble.append(f"a client hangs: {thread}")
        for process, _ in [*load[0], *load[1]]:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        crash.collect(*load)
        self.count += storm.counts
        self.trouble += storm.trouble

    def _operate(self, storm: Storm, over: threading.Event) -> None:
        while not over.is_set():
            try:
                asyncio.run(storm._operate())
            except Exception as error:
                # The broker was killed under its hands.
                self.count[f"operator interrupted: {type(error).__name__}"] += 1
                time.sleep(0.5)

    def _probe(self, _chance: random.Random) -> None:
        """A client of its own queue, whom none of it concerns: how long it waits."""
        connection = connect(self.whole.port)
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        until = time.monotonic() + 1
        while time.monotonic() < until:
            began = time.monotonic()
            channel.basic_publish("", queue, b"probe")
            while channel.basic_get(queue, auto_ack=True)[0] is None:
                pass
            self.waits.append(time.monotonic() - began)
            time.sleep(0.02)
        connection.close()

    async def _make_mallory(self) -> None:
        client = BrokerClient(self.whole.appliance.control_socket)
        name = attackers.MALLORY
        try:
            await client.call("user.put", name=name, password=name, tags="management")
            mine = dict.fromkeys(EVERYTHING, f"^({name}.*|)$")
            await client.call("permission.put", vhost="/", user=name, **mine)
        finally:
            await client.close()

    def _report(self) -> None:
        """Runs a report to its end."""
        url = f"{self.whole.appliance.http_url}/api"
        with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60) as client:
            try:
                record = run_report(client, "queue-usage", REPORT_SECONDS_MAX)
            except (httpx.HTTPError, TimeoutError) as error:
                self.trouble.append(f"a report: {error!r}")
                return
        self.count[f"report {record['state']}"] += 1
        if record["state"] != "done":
            self.trouble.append(f"a report is not done: {record}")

    def _judge(self) -> None:
        """Compares the quiet points after the first third with the first of the same start; not
        with that of its first phase, in which it does each thing for the first time."""
        first: dict[int, Quiet] = {}
        for before, point in pairwise(self.quiet):
            if point.at < self.seconds / 3 or point.start != before.start:
                continue
            if point.start in first:
                self.trouble += point.grown(first[point.start])
            else:
                first[point.start] = point

    def __str__(self) -> str:
        waits = sorted(self.waits) or [0.0]
        told = ", ".join(f"{name} {count:,}" for name, count in sorted(self.count.items()))
        attacks = ", ".join(f"{name} {count:,}" for name, count in sorted(self.attacks.items()))
        turns = self.whole.meter.of("broker")
        lines = [
            f"{len(self.quiet)} phases, {self.kills} kills; {told}",
            f"attacks: {attacks}",
            f"probe: {len(waits):,} times, p50 {1000 * waits[len(waits) // 2]:.1f} ms, "
            f"p99 {1000 * waits[len(waits) * 99 // 100]:.1f} ms, at most {1000 * waits[-1]:.0f} ms",
            f"the broker since its last start: {turns}",
            *(f"TROUBLE {each}" for each in self.trouble),
        ]
        return "\n".join(f"  {line}" for line in lines)
