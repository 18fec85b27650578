"""Rows T-Q1 to T-Q4: queues in segments."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

from tests.bench import generator, memory, processes
from tests.bench.client import Client
from tests.bench.store.frame import Bench, Figure, Row
from tests.store.driven import Driven

RECORD_OVERHEAD = 24 + 2 + 9
"""Bytes of a record of these rows beside its body: head, exchange, key and properties."""


def _publish(broker: Any, *options: str) -> dict[str, Any]:
    return generator.run(
        broker.port,
        ["--consumers", "0", "--persistent", "--patience", "120", *options],
        broker.pids(),
    )


def memory_of_a_backlog(bench: Bench) -> Iterator[Figure]:
    """T-Q1."""
    broker = bench.broker()
    for count in (bench.sized(200_000, 10_000_000), bench.sized(0, 0, 90_000_000)):
        if not count:
            continue
        base = bench.sized(100_000, 1_000_000)
        slope = memory.per_message(broker, base, count)  # type: ignore[arg-type]
        yield Figure(
            f"{count:,} messages of 16 B: RssAnon per message",
            f"{slope:.4f} B",
            "<= 0.05 B/message",
            f"in all {slope * count / 2**20:.1f} MiB",
            slope <= 0.05,
        )


def disk_bound(bench: Bench) -> Iterator[Figure]:
    """T-Q2: until the last byte is synced, which a durable declaration behind them all tells."""
    for body, window in ((1500, 0), (1500, 1000), (65536, 0), (65536, 1000)):
        broker = bench.broker()
        count = bench.sized(20 << 20, 600 << 20, 4 << 30) // body
        ceiling = bench.write_rate()
        cpu = processes.cpu_seconds(broker.pids())
        began = time.perf_counter()
        _publish(
            broker, "--body", str(body), "--count", str(count), "--confirm", str(window), "--keep"
        )
        client = Client(broker.port)
        client.declare_queue("last")
        seconds = time.perf_counter() - began
        client.close()
        cpu = (processes.cpu_seconds(broker.pids()) - cpu) / seconds
        rate = count * (body + RECORD_OVERHEAD) / seconds
        share = rate / ceiling
        yield Figure(
            f"{body} B, confirm window {window or 'none'}: written and synced",
            f"{rate / 1e6:,.0f} MB/s, {count / seconds:,.0f}/s",
            ">= 80 % of writing, or CPU bound",
            f"writing {ceiling / 1e6:,.0f} MB/s ({share:.0%}); broker {cpu:.0%} of a core",
            share >= 0.8 or cpu >= 0.9,
        )
        bench.end()
        shutil.rmtree(broker.directory, ignore_errors=True)


def group_commit(bench: Bench) -> Iterator[Figure]:
    """T-Q3."""
    broker = bench.broker()
    for window in (1, 10, 100, 1000):
        sync = bench.sync_ms()
        seconds = bench.sized(1, 4)
        options = ["--persistent", "--confirm", str(window), "--ack", "1", "--prefetch", "1000"]
        result = generator.run(
            broker.port, [*options, "--warmup", "0.5", "--duration", str(seconds)], broker.pids()
        )
        p50, p99 = (result["confirm_us"][key] / 1000 for key in ("p50", "p99"))
        rate = result["confirm_rate"]
        wanted = 0.9 * window / (2 * sync / 1000)
        cpu = result["cpu_seconds"] / result["seconds"]
        yield Figure(
            f"window {window}: confirm p50 / p99, confirms/s",
            f"{p50:.2f} / {p99:.2f} ms, {rate:,.0f}/s",
            "p50 <= 2 syncs; >= 0.9 w/(2 syncs)",
            f"sync {sync:.2f} ms; {wanted:,.0f}/s; broker {cpu:.0%} of a core",
            p50 <= 2 * sync and (rate >= wanted or cpu >= 0.9),
        )


def boot(bench: Bench) -> Iterator[Figure]:
    """T-Q4: recovery of one queue in this process; the machine's part is reading the files."""
    count = bench.sized(50, 1000)
    directory = bench.base / "boot"
    driven = Driven(directory, segment_size=65536)
    body = bytes(1000)
    while driven.queue.store is None or driven.queue.store.segment_count < count + 1:
        for _ in range(600):
            driven.publish(body)
        driven.sync()
    driven.tick()
    driven.kill()
    sealed = len(driven.files("meta"))
    driven = Driven(directory, segment_size=65536)
    began = time.perf_counter()
    problems = driven.recover()
    seconds = time.perf_counter() - began
    assert not problems, problems
    driven.kill()
    yield Figure(
        f"{sealed} sealed segments with summaries",
        f"{seconds * 1000 / sealed:.3f} ms/segment",
        "<= 0.5 ms per sealed segment",
        f"{driven.queue.messages_ready:,} messages in {seconds:.2f} s",
        seconds * 1000 / sealed <= 0.5,
    )
    shutil.rmtree(directory)
    driven = Driven(directory, segment_size=64 << 20)
    for _ in range(bench.sized(8_000, 60_000)):
        driven.publish(body)
    driven.sync()
    driven.kill()
    (segment,) = driven.files("msgs")
    with segment.open("ab") as file:
        file.write(b"\x55" * 5000)
    length = segment.stat().st_size
    began = time.perf_counter()
    segment.read_bytes()
    read = length / (time.perf_counter() - began)
    driven = Driven(directory, segment_size=64 << 20)
    began = time.perf_counter()
    problems = driven.recover()
    rate = length / (time.perf_counter() - began)
    assert len(problems) == 1, problems
    driven.kill()
    yield Figure(
        f"a torn tail of {length >> 20} MiB, scanned record by record",
        f"{rate / 1e6:,.0f} MB/s",
        ">= 500 MB/s",
        f"reading alone {read / 1e6:,.0f} MB/s",
        rate >= 500e6,
    )
    shutil.rmtree(directory)


ROWS = (
    Row("T-Q1", "a backlog costs no memory", memory_of_a_backlog),
    Row("T-Q2", "publishing is bound by the disk", disk_bound),
    Row("T-Q3", "group commit needs no timer", group_commit),
    Row("T-Q4", "a start reads summaries, and scans one tail", boot),
)
