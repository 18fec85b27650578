"""What an attack costs others: probes beside it, and beside a control run of the same cost.

An attack, each probe and the control run are processes of their own, so that none waits for another
inside Python. The control run does nothing to the appliance: processes burn as much CPU as the
attacker and each process of the appliance took, each at the niceness of the one it stands for, and
send as many bytes to a sink, at the same times: an attack that is over in a second of its four is
compared with one that takes the machine for a second.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import multiprocessing
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tests.amqp import raw
from tests.appliance import Appliance
from tests.hostile.figures import (
    cpu_seconds,
    descended,
    forget_peak,
    peak_bytes,
    resident_bytes,
    wait_idle,
)
from tests.turns import TurnMeter

FORK = multiprocessing.get_context("fork")
PROBE = "probe"
"""The user of the probes, and its password."""
SHARE_SPUN_S = 0.001
PACE_S = 0.05
TELL_S = 120


class Child:
    """`work(pipe)` in a process of its own; `tell` lets it end and returns what it sent."""

    def __init__(self, work: Callable[..., None], *args: Any) -> None:
        self.pipe, theirs = FORK.Pipe()
        self.process = FORK.Process(target=work, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()

    def received(self, seconds: float) -> Any:
        """What it sends next; `AssertionError` if nothing comes."""
        try:
            assert self.pipe.poll(seconds), "a process of the measurement does not answer"
            return self.pipe.recv()
        except EOFError:
            raise AssertionError("a process of the measurement failed") from None

    def tell(self) -> Any:
        self.pipe.send("end")
        found = self.received(TELL_S)
        self.process.join(TELL_S)
        return found


@dataclass(frozen=True)
class Waits:
    """Of one probe, in milliseconds."""

    count: int
    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Waits:
        waits = sorted(seconds) or [0.0]
        return cls(
            len(seconds), 1000 * waits[len(waits) // 2], 1000 * waits[len(waits) * 99 // 100]
        )

    def __str__(self) -> str:
        return f"{self.p50:.1f}/{self.p99:.1f}"


def _probe(pipe: Connection, once: Iterator[None], pause_s: float) -> None:
    next(once)  # it is connected
    pipe.send("ready")
    waits = []
    while not pipe.poll(pause_s):
        begun = time.monotonic()
        next(once)
        waits.append(time.monotonic() - begun)
    pipe.send(waits)


def _published(address: tuple[str, int]) -> Iterator[None]:
    with raw.Client.open(address, timeout=300, user=PROBE, password=PROBE) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        while True:
            yield
            client.publish(1, "", queue, b"probe")
            assert client.get(1, queue, no_ack=True) is not None


def _asked(address: tuple[str, int]) -> Iterator[None]:
    credentials = base64.b64encode(f"{PROBE}:{PROBE}".encode()).decode()
    web = http.client.HTTPConnection(*address, timeout=300)
    while True:
        web.request(
            "GET", "/api/exchanges/%2F/amq.topic", headers={"Authorization": f"Basic {credentials}"}
        )
        answer = web.getresponse()
        answer.read()
        assert answer.status == 200, f"the probe was answered {answer.status}"
        yield


class Probes:
    """A user who publishes and gets over AMQP, and asks for an exchange over HTTP."""

    def __init__(self, appliance: Appliance) -> None:
        amqp, web = ((appliance.host, port) for port in (appliance.amqp_port, appliance.http_port))
        self._children = [
            Child(_probe, _published(amqp), 0.003),
            Child(_probe, _asked(web), 0.010),
        ]
        for child in self._children:
            assert child.received(TELL_S) == "ready"

    def end(self) -> tuple[Waits, Waits]:
        amqp, web = (Waits.of(child.tell()) for child in self._children)
        return amqp, web


def spent(appliance: Appliance) -> dict[str, float]:
    """CPU seconds of each process of the appliance so far, its ended children's with it."""
    return {name: cpu_seconds(pid) + descended(pid) for name, pid in appliance.pids.items()}


class Pace:
    """Which share of something was spent by when, in equal steps of time; evenly if it is not
    known."""

    def __init__(self, totals: list[float]) -> None:
        risen = [each - totals[0] for each in totals] if totals else []
        whole = risen[-1] if risen else 0.0
        self._shares = [each / whole for each in risen] if whole > 0 else [0.0, 1.0]

    def at(self, part: float) -> float:
        """The share that was spent after this part of the time."""
        place = min(max(part, 0.0), 1.0) * (len(self._shares) - 1)
        low = min(int(place), len(self._shares) - 2)
        before, after = self._shares[low], self._shares[low + 1]
        return before + (after - before) * (place - low)


class Watch:
    """Notes CPU of processes and bytes sent, so often that a control run can keep the pace."""

    def __init__(self, pids: dict[str, int], sent: Any) -> None:
        self._pids, self._sent = pids, sent
        self._totals: dict[str, list[float]] = {name: [] for name in (*pids, "sent")}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._note_all, daemon=True)
        self._thread.start()

    def _note_all(self) -> None:
        while not self._over.is_set():
            for name, pid in self._pids.items():
                self._totals[name].append(_cpu_clock(pid, self._totals[name]))
            self._totals["sent"].append(float(self._sent.value))
            self._over.wait(PACE_S)

    def end(self) -> dict[str, Pace]:
        self._over.set()
        self._thread.join()
        return {
            name: Pace(totals if len(totals) > 1 else []) for name, totals in self._totals.items()
        }


def _cpu_clock(pid: int, before: list[float]) -> float:
    """CPU seconds of a process; what it was when the process is over."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED, clock_getcpuclockid(3)
    except OSError:
        return before[-1] if before else 0.0


def _burn(
    pipe: Connection, cpu: Burnt, wall_s: float, nice: int, address: Any, sent: Burnt
) -> None:
    """Burns CPU and sends bytes, each at its pace."""
    with contextlib.suppress(PermissionError):  # where the caller's own is above it
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    peer = socket.create_connection(address) if sent.total else None
    done, begun = 0, time.monotonic()
    while (part := (time.monotonic() - begun) / wall_s) < 1 and not pipe.poll(0):
        is_behind = peer is not None and done < sent.by(part)
        if peer is not None and is_behind:
            with contextlib.suppress(TimeoutError):
                done += peer.send(bytes(1 << 16))
        if time.process_time() < cpu.by(part):
            until = time.process_time() + SHARE_SPUN_S
            while time.process_time() < until:
                pass
        elif not is_behind:
            time.sleep(SHARE_SPUN_S)
    pipe.send(time.process_time())


def _sink(pipe: Connection, listener: socket.socket) -> None:
    def take() -> None:
        peer, _ = listener.accept()
        while peer.recv(1 << 18):
            pass

    threading.Thread(target=take, daemon=True).start()
    pipe.poll(None)
    pipe.send(None)


def control_run(cost: Cost) -> None:
    """Takes as long, as much CPU and as many bytes as the attack did."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sink = Child(_sink, listener)
        address = listener.getsockname()
        own = os.getpriority(os.PRIO_PROCESS, 0)
        nothing = Burnt(0.0, cost.paces["sent"])
        attacker = Burnt(cost.attacker_s, cost.paces["attacker"])
        sent = Burnt(cost.sent, cost.paces["sent"])
        burning = [Child(_burn, attacker, cost.seconds, own, address, sent)]
        for name, cpu_s in cost.appliance_s.items():
            if cpu_s > 0.01:
                cpu = Burnt(min(cpu_s, cost.seconds), cost.paces[name])
                burning.append(Child(_burn, cpu, cost.seconds, cost.nices[name], None, nothing))
        for child in burning:
            child.received(cost.seconds + TELL_S)
        for child in burning:
            child.process.join(TELL_S)
        sink.tell()


@dataclass(frozen=True)
class Burnt:
    """CPU seconds or bytes, and when they were spent."""

    total: float
    pace: Pace

    def by(self, part: float) -> float:
        return self.total * self.pace.at(part)


@dataclass(frozen=True)
class Cost:
    """Of one attack: its length, CPU of the attacker and of the appliance's processes (probes'
    share taken off), their niceness, the bytes that the attacker sent, and the pace of each."""

    seconds: float
    attacker_s: float
    appliance_s: dict[str, float]
    nices: dict[str, int]
    sent: int
    paces: dict[str, Pace]


@dataclass
class Row:
    """What was measured of one attack; memory in MiB, times in ms."""

    name: str
    cost: Cost
    amqp: Waits
    web: Waits
    amqp_control: Waits
    web_control: Waits
    turns: dict[str, float]
    memory: dict[str, tuple[float, float, float]]
    """Before, at the most, after; by process."""
    text: str
    slow: list[str] = field(default_factory=list)

    def ratios(self) -> tuple[float, float]:
        return (
            self.amqp.p99 / max(self.amqp_control.p99, 0.001),
            self.web.p99 / max(self.web_control.p99, 0.001),
        )


class CountingSocket(socket.socket):
    """Counts what an attacker sends, and sends from an address of its own (a loopback one)."""

    sent = FORK.RawValue("Q", 0)
    """Bytes, for all processes."""
    source = "127.0.0.3"

    def connect(self, address: Any) -> None:
        if self.family == socket.AF_INET:
            with contextlib.suppress(OSError):  # it is bound
                self.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
                self.bind((CountingSocket.source, 0))
        super().connect(address)

    def send(self, data: Any, *args: Any) -> int:
        count = super().send(data, *args)
        CountingSocket.sent.value += count
        return count

    def sendall(self, data: Any, *args: Any) -> None:
        super().sendall(data, *args)
        CountingSocket.sent.value += memoryview(data).nbytes


def _attack(pipe: Connection, attack: Callable[[], str]) -> None:
    socket.socket = CountingSocket  # type: ignore[misc]
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        text = attack()
    except Exception as error:
        text = f"WRONG: {type(error).__name__}: {error}"
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pipe.send((text, cpu, CountingSocket.sent.value))
    pipe.close()
    os._exit(0)  # its sockets close at once, whatever its threads do


class Measure:
    """Carries attacks out on one appliance, each beside the probes, and then its control run."""

    def __init__(self, appliance: Appliance, meter: TurnMeter) -> None:
        self.appliance = appliance
        self.meter = meter
        self.idle = self._idle_cost()

    def _idle_cost(self) -> dict[str, float]:
        """CPU seconds a second that the probes alone cost the appliance."""
        probes = Probes(self.appliance)
        before = spent(self.appliance)
        time.sleep(2.0)
        after = spent(self.appliance)
        probes.end()
        return {name: (after[name] - before[name]) / 2.0 for name in after}

    def row(self, name: str, attack: Callable[[], str], timeout: float = 1800) -> Row:
        pids = {one: self.appliance.pids[one] for one in ("broker", "web")}
        for pid in pids.values():
            forget_peak(pid)
        before = {one: resident_bytes(pid) for one, pid in pids.items()}
        probes = Probes(self.appliance)
        self.meter.forget()
        cpu, begun = spent(self.appliance), time.monotonic()
        CountingSocket.sent.value = 0
        child = Child(_attack, attack)
        attacker_pid = child.process.pid
        assert attacker_pid is not None
        watch = Watch({**self.appliance.pids, "attacker": attacker_pid}, CountingSocket.sent)
        text, attacker_s, sent = child.received(timeout)
        child.process.join(TELL_S)
        self._settle(cpu)
        seconds, paces = time.monotonic() - begun, watch.end()
        now = spent(self.appliance)
        appliance_s = {one: now[one] - cpu[one] - self.idle.get(one, 0.0) * seconds for one in now}
        amqp, web = probes.end()
        turns = {one: self.meter.of(one).longest for one in pids}
        slow = [line for one in pids for line in self.meter.slow_callbacks(one)]
        slow += [line for one in pids for line in self.meter.slow_turns(one)]
        peak = {one: peak_bytes(pid) for one, pid in pids.items()}
        for pid in pids.values():
            with contextlib.suppress(AssertionError):  # the statistics of many objects go on
                wait_idle(pid, 10)
        memory = {
            one: (before[one] / 2**20, peak[one] / 2**20, resident_bytes(pid) / 2**20)
            for one, pid in pids.items()
        }
        nices = {
            one: os.getpriority(os.PRIO_PROCESS, pid) for one, pid in self.appliance.pids.items()
        }
        cost = Cost(seconds, attacker_s, appliance_s, nices, sent, paces)
        probes = Probes(self.appliance)
        control_run(cost)
        controls = probes.end()
        return Row(name, cost, amqp, web, *controls, turns, memory, text, slow)

    def _settle(self, cpu: dict[str, float]) -> None:
        """Until the appliance takes little more than the probes cost it: what the attacker left is
        deleted."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            before = spent(self.appliance)
            time.sleep(0.5)
            now = spent(self.appliance)
            if all(now[one] - before[one] < 0.1 + self.idle.get(one, 0.0) for one in now):
                return
