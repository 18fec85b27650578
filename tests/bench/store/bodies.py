"""Rows T-B1 to T-B3: bodies that several queues share."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from management.broker_client import BrokerClient
from tests.bench import generator, processes
from tests.bench.client import Client, method, short
from tests.bench.leveret import Leveret
from tests.bench.store.frame import Bench, Figure, Row

NEVER = "2147483647"
"""For `embed_below`: every body is embedded in each queue's record."""


def node(broker: Leveret) -> dict[str, Any]:
    """What the node says of itself."""

    async def ask() -> dict[str, Any]:
        client = BrokerClient(broker.directory / "data/control.sock")
        (row,) = await client.call("nodes")
        await client.close()
        return dict(row)

    return asyncio.run(ask())


def figures(broker: Leveret) -> dict[str, Any]:
    """The figures of shared bodies."""
    return dict(node(broker)["msg_store"])


def written_to_disk(broker: Leveret) -> int:
    """Bytes that the broker had written to the disk so far, by the kernel's count of pages."""
    total = 0
    for pid in broker.pids():
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                total += int(line.split()[1])
    return total


def all_synced(broker: Leveret) -> None:
    """Waits until all that was published is on disk: a durable declaration comes behind it."""
    client = Client(broker.port, timeout=120)
    client.declare_queue("last")
    client.delete_queue("last")
    client.close()


def fan(port: int, name: str, queues: int) -> list[str]:
    """A durable fanout exchange `name` with so many durable queues; their names."""
    client = Client(port)
    client.send(method(1, 40, 10, b"\0\0" + short(name) + short("fanout") + b"\2" + b"\0\0\0\0"))
    client.wait(40, 11)
    names = [f"{name}.{number}" for number in range(queues)]
    for queue in names:
        client.declare_queue(queue)
        bind = b"\0\0" + short(queue) + short(name) + short("") + b"\0" + b"\0\0\0\0"
        client.send(method(1, 50, 20, bind))
        client.wait(50, 21)
    client.close()
    return names


def _fanned_out(
    bench: Bench, fanout: int, body: int, window: int, count: int, *settings: str
) -> tuple[float, float, float]:
    """Publishes persistent bodies until the last is synced. Returns bytes to disk for each byte of
    body, messages a second, and the share of a core that the broker used."""
    broker = bench.broker(*settings)
    options = ["--fanout", str(fanout), "--consumers", "0", "--persistent", "--keep"]
    options += ["--body", str(body), "--confirm", str(window), "--patience", "120"]
    generator.run(broker.port, [*options, "--count", str(max(10, count // 20))])
    all_synced(broker)
    before = written_to_disk(broker)
    cpu = processes.cpu_seconds(broker.pids())
    began = time.perf_counter()
    generator.run(broker.port, [*options, "--count", str(count)])
    all_synced(broker)
    seconds = time.perf_counter() - began
    cpu = (processes.cpu_seconds(broker.pids()) - cpu) / seconds
    written = (written_to_disk(broker) - before) / (count * body)
    bench.end()
    shutil.rmtree(broker.directory, ignore_errors=True)
    return written, count / seconds, cpu


def written_once(bench: Bench) -> Iterator[Figure]:
    """T-B1: 64 KiB to ten durable queues; sharing and embedding in turn."""
    body, fanout = 65536, 10
    count = bench.sized(100, 4000, 20000)
    for window in (50, 1000):
        shared, embedded, ceilings = [], [], []
        for _ in range(bench.sized(1, 3)):
            ceilings.append(bench.write_rate())
            shared.append(_fanned_out(bench, fanout, body, window, count))
            embedded.append(
                _fanned_out(bench, fanout, body, window, count // fanout, "--embed-below", NEVER)
            )
        written, rate, cpu = (statistics.median(values) for values in zip(*shared, strict=True))
        embed_written, embed_rate, _ = (
            statistics.median(values) for values in zip(*embedded, strict=True)
        )
        ceiling = statistics.median(ceilings) / body
        yield Figure(
            f"64 KiB to {fanout} queues, window {window}: bytes to disk / body",
            f"{written:.4f}",
            "<= 1.02",
            f"embedded {embed_written:.2f}",
            written <= 1.02,
        )
        yield Figure(
            f"64 KiB to {fanout} queues, window {window}: rate",
            f"{rate:,.0f}/s, {rate / embed_rate:.1f} x embedded",
            ">= 8 x embedded",
            f"embedded {embed_rate:,.0f}/s; writing once {ceiling:,.0f}/s; broker {cpu:.0%} of a "
            "core",
            rate / embed_rate >= 8,
        )


def threshold(bench: Bench) -> Iterator[Figure]:
    """T-B2: the same load with every body shared, with those of 4096 bytes on, and with none; the
    crossover is where sharing becomes the faster one."""
    settings = {"0": ("--embed-below", "0"), "4096": (), "off": ("--embed-below", NEVER)}
    for body in (256, 1024, 4096, 16384, 65536):
        count = bench.sized(200, max(2000, min(40_000, (200 << 20) // (10 * body))), 100_000)
        rates: dict[str, list[float]] = {name: [] for name in settings}
        for _ in range(bench.sized(1, 3)):
            for name, options in settings.items():
                rates[name].append(_fanned_out(bench, 10, body, 200, count, *options)[1])
        median = {name: statistics.median(values) for name, values in rates.items()}
        best = max(median["0"], median["off"])
        ceiling = bench.write_rate()
        yield Figure(
            f"{body} B to 10 queues: rate at threshold 0 / 4096 / off",
            " / ".join(f"{median[name]:,.0f}" for name in settings),
            "4096 within 10 % of the better",
            f"{median['4096'] / best:.0%} of the better; writing once {ceiling / body:,.0f}/s, ten "
            f"times {ceiling / body / 10:,.0f}/s",
            median["4096"] >= 0.9 * best,
        )


def cancelled(bench: Bench) -> Iterator[Figure]:
    """T-B3: two queues whose consumers acknowledge at once."""
    body = 8192
    for window, target in ((0, 0.3), (1000, 0.7), (100, 0.7)):
        broker = bench.broker()
        options = ["--fanout", "2", "--consumers", "2", "--persistent", "--body", str(body)]
        options += ["--ack", "1", "--prefetch", "500", "--confirm", str(window)]
        # Fewer bytes than the write buffer (1 MiB): consumers that lag behind more are not at once.
        options += ["--in-flight", "100"] if not window else []
        count = bench.sized(2000, 100_000, 400_000)
        before = written_to_disk(broker)
        result = generator.run(broker.port, [*options, "--count", str(count)], broker.pids())
        all_synced(broker)
        bodies = figures(broker)
        disk = (written_to_disk(broker) - before) / bodies["shared_bytes"]
        share = bodies["written_bytes"] / bodies["shared_bytes"]
        settled = bodies["written"] + bodies["cancelled_writes"]
        if settled != bodies["shared"] or bodies["references"]:
            raise RuntimeError(f"bodies were lost or kept: {bodies}")
        cpu = result["cpu_seconds"] / result["seconds"]
        yield Figure(
            f"8 KiB to 2 queues, acked at once, window {window or 'none'}: written / published",
            f"{share:.3f}",
            f"<= {target}, each confirm once",
            f"all to disk {disk:.3f}; {count / result['seconds']:,.0f}/s; sync "
            f"{bench.sync_ms():.2f} ms; broker {cpu:.0%} of a core",
            share <= target,
        )
        bench.end()
        shutil.rmtree(broker.directory, ignore_errors=True)


ROWS = (
    Row("T-B1", "a body is written once for all its queues", written_once),
    Row("T-B2", "small bodies are better embedded", threshold),
    Row("T-B3", "what is consumed at once is not written", cancelled),
)
