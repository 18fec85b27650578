"""Rows T-B4 to T-B7: the files of shared bodies are collected, under load, reads and crashes."""

from __future__ import annotations

import random
import shutil
import threading
import time
import zlib
from collections.abc import Iterator

from tests.bench import generator
from tests.bench.client import Client, ConnectionLost, Delivery, method, publish, short
from tests.bench.leveret import Leveret
from tests.bench.store.bodies import all_synced, fan, figures
from tests.bench.store.frame import Bench, Figure, Row
from tests.store.body_crashes import crashes_of_a_collection

BODY = 65536
FILE = 16 << 20


def made(number: int, size: int = BODY) -> bytes:
    """A body that carries its own CRC."""
    content = number.to_bytes(8) + bytes([number % 251]) * (size - 12)
    return zlib.crc32(content).to_bytes(4) + content


def is_whole(body: bytes) -> bool:
    """Whether it is one that `made` gave."""
    return zlib.crc32(body[4:]) == int.from_bytes(body[:4])


def _publish(broker: Leveret, exchange: str, numbers: range, size: int = BODY) -> None:
    """Publishes bodies, all of them confirmed afterwards."""
    client = Client(broker.port, timeout=120)
    client.select_confirms()
    confirmed = 0
    for sent, number in enumerate(numbers, 1):
        client.send(publish(exchange, "", made(number, size), True))
        while client.receive(0) or sent - confirmed >= 200:
            for event in client.events:
                confirmed = max(confirmed, getattr(event, "delivery_tag", 0))
            client.events.clear()
            if sent - confirmed >= 200:
                client.receive()
    all_synced(broker)
    client.close()


def _settle(broker: Leveret, queue: str, count: int, share: float, chance: random.Random) -> int:
    """Takes `count` messages and acknowledges a random share of them; the others go back. Returns
    how many had a wrong body."""
    client = Client(broker.port, timeout=120)
    client.qos(0)
    client.consume(queue, "c")
    seen = wrong = 0
    kept = []
    while seen < count:
        client.receive()
        for event in client.events:
            if isinstance(event, Delivery):
                seen += 1
                wrong += not is_whole(event.body)
                if chance.random() < share:
                    client.acknowledge(event.delivery_tag)
                else:
                    kept.append(event.delivery_tag)
        client.events.clear()
    client.qos(0)
    client.close()
    return wrong


def _purge(broker: Leveret, queue: str) -> None:
    client = Client(broker.port, timeout=120)
    client.send(method(1, 50, 30, b"\0\0" + short(queue) + b"\0"))
    client.wait(50, 31)
    client.close()


def _is_idle(broker: Leveret, seconds: float = 120.0) -> dict[str, int]:
    """The figures once no collection has begun for three seconds."""
    deadline = time.monotonic() + seconds
    runs, since = -1, 0.0
    while time.monotonic() < deadline:
        now = figures(broker)
        if now["gc_runs"] != runs or now["gc_running"]:
            runs, since = now["gc_runs"], time.monotonic()
        elif time.monotonic() - since > 3:
            return now
        time.sleep(0.1)
    raise RuntimeError("collecting does not come to its end")


def _latency(broker: Leveret, seconds: float) -> tuple[float, float]:
    """p50 and p99 of confirms (ms) of a small load beside whatever goes on."""
    options = ["--body", "1000", "--persistent", "--confirm", "10", "--rate", "2000"]
    options += ["--ack", "10", "--prefetch", "100", "--duration", str(seconds)]
    result = generator.run(broker.port, options)
    return result["confirm_us"]["p50"] / 1000, result["confirm_us"]["p99"] / 1000


def bounded(bench: Bench) -> Iterator[Figure]:
    """T-B4."""
    chance = random.Random(41)
    size = bench.sized(64 << 20, 1 << 30, 10 << 30)
    count = size // BODY
    broker = bench.broker()
    keep, other = fan(broker.port, "f", 2)
    ceiling = bench.write_rate()
    _publish(broker, "f", range(count))
    _, quiet_p99 = _latency(broker, bench.sized(1, 5))
    wrong = _settle(broker, keep, count, 0.6, chance)
    began = time.monotonic()
    _purge(broker, other)
    _, busy_p99 = _latency(broker, bench.sized(1, 5))
    runs = figures(broker)["gc_runs"]
    after = _is_idle(broker, 600)
    seconds = time.monotonic() - began
    yield _of_disk(f"60 % of {size >> 20:,} MiB deleted at random", after)
    yield _of_copying(
        "the same", after, f"{seconds:.1f} s; writing alone {ceiling / 1e6:,.0f} MB/s"
    )
    yield Figure(
        "confirms while it collects / before: p99",
        f"{busy_p99:.2f} / {quiet_p99:.2f} ms",
        "<= 2 x without",
        f"{runs} of {after['gc_runs']} runs meanwhile; sync {bench.sync_ms():.2f} ms",
        busy_p99 <= 2 * quiet_p99,
    )
    # Half as much again, of which half stays, a few times over.
    keep_two, other_two = fan(broker.port, "g", 2)
    rounds, some = bench.sized(2, 6), count // 4
    worst = 0
    for turn in range(rounds):
        _publish(broker, "g", range(turn * some, (turn + 1) * some))
        held = figures(broker)
        worst = max(worst, held["bytes"] - 2 * held["live_bytes"])
        wrong += _settle(broker, keep_two, some, 0.5, chance)
        _purge(broker, other_two)
    churned = _is_idle(broker, 600)
    yield _of_disk(f"{rounds} rounds of {some * BODY >> 20} MiB, half of it deleted", churned)
    yield _of_copying("the same", churned, f"wrong bodies {wrong}")


def _of_disk(what: str, after: dict[str, int]) -> Figure:
    most = 2 * after["live_bytes"] + 3 * FILE
    return Figure(
        f"{what}: bytes on disk / living",
        f"{after['bytes'] / max(1, after['live_bytes']):.2f}",
        "<= 2 x living + 3 files",
        f"{after['bytes'] >> 20:,} MiB of at most {most >> 20:,}; in {after['files']} files",
        after["bytes"] <= most,
    )


def _of_copying(what: str, after: dict[str, int], beside: str) -> Figure:
    share = after["gc_copied_bytes"] / max(1, after["gc_reclaimed_bytes"])
    return Figure(
        f"{what}: bytes copied / given back",
        f"{share:.2f}",
        "<= 1.0",
        f"{after['gc_runs']} runs; {beside}",
        share <= 1.0,
    )


def read_meanwhile(bench: Bench) -> Iterator[Figure]:
    """T-B5: consumers read everything again and again while files are merged and removed."""
    chance = random.Random(42)
    count = bench.sized(64 << 20, 512 << 20, 2 << 30) // BODY
    broker = bench.broker()
    keep, other = fan(broker.port, "f", 2)
    _publish(broker, "f", range(count))
    wrong = _settle(broker, keep, count, 0.6, chance)
    client = Client(broker.port)
    left = client.declare_queue(keep, passive=True)
    client.close()
    began = figures(broker)["gc_runs"]
    _purge(broker, other)
    reads = 0
    deadline = time.monotonic() + bench.sized(5, 60)
    began_at = time.monotonic()
    while time.monotonic() < deadline:
        # Nothing is acknowledged: all of it goes back.
        wrong += _settle(broker, keep, left, 0.0, chance)
        reads += left
        if figures(broker)["gc_runs"] > began and not figures(broker)["gc_running"]:
            break
    seconds = time.monotonic() - began_at
    wrong += _settle(broker, keep, left, 0.0, chance)
    after = _is_idle(broker)
    yield Figure(
        f"{reads + left:,} bodies read while {after['gc_runs'] - began} runs merged files",
        f"{wrong} wrong, {after['dangling']} missing",
        "0 errors, 0 retries",
        f"{reads / seconds:,.0f} bodies/s; there is no lock and no second try",
        not wrong and not after["dangling"] and after["gc_runs"] > began,
    )


def crash_points(bench: Bench) -> Iterator[Figure]:
    """T-B6: B1 to B5 behind every file operation of a collection, with other bodies each time."""
    seeds = bench.sized(1, 10, 1000)
    states = 0
    began = time.monotonic()
    for seed in range(seeds):
        for backend in ("ram", "leveldb"):
            directory = bench.base / f"crash-{seed}-{backend}"
            states += crashes_of_a_collection(directory / "data", backend, seed)
            shutil.rmtree(directory)
    seconds = time.monotonic() - began
    yield Figure(
        f"{seeds} seeds, both backends: states behind every operation",
        f"{states:,} states, 0 violations",
        "B1-B5 hold",
        f"{seconds:.0f} s",
        True,
    )


class _Slow:
    """A consumer that holds `held` messages, and acknowledges a random one for each new one."""

    def __init__(self, broker: Leveret, queue: str, held: int) -> None:
        self.client = Client(broker.port, timeout=120)
        self.client.qos(held)
        self.client.consume(queue, "slow")
        self.held = held
        self.ended = False
        self.wrong = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        chance = random.Random(7)
        holding: list[int] = []
        while not self.ended:
            try:
                self.client.receive(0.2)
            except ConnectionLost:
                return
            for event in self.client.events:
                if isinstance(event, Delivery):
                    holding.append(event.delivery_tag)
                    self.wrong += not is_whole(event.body)
            self.client.events.clear()
            while len(holding) >= self.held:
                at = chance.randrange(len(holding))
                holding[at], holding[-1] = holding[-1], holding[at]
                self.client.acknowledge(holding.pop())


def slow_beside_fast(bench: Bench) -> Iterator[Figure]:
    """T-B7: what is consumed at once and what a slow consumer keeps lie in the same files. (Once a
    defect of RabbitMQ's: rabbitmq-server issue 16141.)"""
    size, held = 120_000, bench.sized(50, 1000)
    seconds = bench.sized(4, 45, 300)
    broker = bench.broker()
    ceiling = bench.write_rate()
    rate = int(min(500, 0.3 * ceiling / size))
    fast_queues = [fan(broker.port, f"fast.{number}", 2) for number in range(bench.sized(2, 10))]
    slow = fan(broker.port, "slow", 2)
    consumers = [Client(broker.port, timeout=600) for _ in range(2)]
    fast = [queue for names in fast_queues for queue in names] + slow[:1]
    for number, queue in enumerate(fast):
        consumers[number % 2].consume(queue, queue, no_ack=True)
    ended = threading.Event()

    def drain(client: Client) -> None:
        while not ended.is_set():
            client.receive(0.2)
            client.events.clear()

    threads = [threading.Thread(target=drain, args=(client,)) for client in consumers]
    for thread in threads:
        thread.start()
    keeper = _Slow(broker, slow[1], held)
    publisher = Client(broker.port, timeout=120)
    samples: list[dict[str, int]] = []
    began = sampled = time.monotonic()
    sent = 0
    exchanges = [f"fast.{number}" for number in range(len(fast_queues))]
    while (now := time.monotonic()) - began < seconds:
        # Every fourth message goes to the slow consumer as well as to a fast one.
        exchange = "slow" if sent % 4 == 0 else exchanges[sent % len(exchanges)]
        publisher.send(publish(exchange, "", made(sent, size), True))
        sent += 1
        if now - sampled > 0.5:
            samples.append(figures(broker))
            sampled = now
        time.sleep(max(0.0, began + sent / rate - time.monotonic()))
    samples.append(figures(broker))
    publisher.close()
    ended.set()
    keeper.ended = True
    for thread in [*threads, keeper.thread]:
        thread.join()
    last = samples[-1]
    middle = len(samples) // 2
    early = max(each["bytes"] for each in samples[:middle][-max(1, middle // 2) :])
    late = max(each["bytes"] for each in samples[middle:])
    allowed = 2 * max(each["live_bytes"] for each in samples[middle:]) + 4 * FILE
    published = sent * size
    yield Figure(
        f"{sent / seconds:,.0f} x 120 KB/s, {held} kept by a slow consumer: disk, mid / end",
        f"{early >> 20} / {late >> 20} MiB",
        "flat; <= 2 x living + 4 files",
        f"{allowed >> 20} MiB; {published >> 20:,} MiB published in {seconds} s, {rate}/s wanted; "
        f"writing {ceiling / 1e6:,.0f} MB/s",
        late <= allowed and not keeper.wrong,
    )
    yield Figure(
        "the same: bytes written / copied / given back",
        f"{last['written_bytes'] >> 20} / {last['gc_copied_bytes'] >> 20} / "
        f"{last['gc_reclaimed_bytes'] >> 20} MiB",
        "copied <= given back",
        f"{last['gc_runs']} runs; cancelled {last['cancelled_bytes'] >> 20} MiB",
        last["gc_copied_bytes"] <= last["gc_reclaimed_bytes"],
    )
    for consumer in (*consumers, keeper.client):
        consumer.abort()


ROWS = (
    Row("T-B4", "the disk holds at most twice what lives", bounded),
    Row("T-B5", "reading goes on while files are merged", read_meanwhile),
    Row("T-B6", "a crash at any step of a collection loses nothing", crash_points),
    Row("T-B7", "one slow consumer does not fill the disk", slow_beside_fast),
)
