"""`python -m tests.bench.screens`: what 10,000 queues cost while no client publishes, and what
lists cost. Prints one line a figure; processor times are the broker's own. The idle broker stands
beside one without queues: what both need (timers, looks at disk and memory) is no cost of queues.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from management.broker_client import BrokerClient
from tests.appliance import Appliance

FULL = {"noun": "queues", "page": 1, "page_size": 100}
LISTS: dict[str, dict[str, Any]] = {
    "queues by name": FULL | {"sort": "name"},
    "queues by messages": FULL | {"sort": "messages", "sort_reverse": True},
    "queues by publish rate": FULL
    | {"sort": "message_stats.publish_details.rate", "sort_reverse": True},
    "queues by trouble": FULL | {"sort": "trouble"},
    "queues with 77 in the name": FULL | {"name": "77", "sort": "name"},
    "queues in trouble": FULL | {"state": "trouble"},
    "queues, three columns": FULL | {"columns": ["name", "messages", "vhost"]},
    "queues, lean": FULL | {"disable_stats": True},
    "bindings": {"noun": "bindings", "page": 1, "page_size": 100},
    "bindings by destination": {
        "noun": "bindings",
        "page": 50,
        "page_size": 100,
        "sort": "destination",
    },
}


REST_LOOK_S = 0.5
REST_SHARE = 0.1
REST_MAX_S = 60.0


def processor_seconds(pid: int) -> float:
    """On a processor so far, in seconds, all threads (Linux's schedstat)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


@contextlib.asynccontextmanager
async def filled(queues: int, with_messages: bool) -> AsyncIterator[tuple[Appliance, BrokerClient]]:
    """A broker with that many durable queues, each bound to amq.direct as well."""
    with tempfile.TemporaryDirectory() as directory:
        appliance = Appliance("broker", Path(directory)).start()
        client = BrokerClient(appliance.data_dir / "control.sock")
        try:
            for first in range(0, queues, 50):
                await asyncio.gather(*(_make(client, n) for n in range(first, first + 50)))
            if with_messages:
                for number in range(queues):
                    await client.call(
                        "exchange.publish",
                        vhost="/",
                        name="",
                        routing_key=f"queue-{number:05}",
                        payload=b"x",
                        properties={},
                    )
            await rest(appliance.pids["broker"])
            yield appliance, client
        finally:
            await client.close()
            appliance.stop()


async def rest(pid: int) -> None:
    """Returns when the broker has done what it was asked for: a thread of it creates and syncs the
    files of 10,000 queues for seconds, which would be counted with what is asked next."""
    until = time.monotonic() + REST_MAX_S
    while time.monotonic() < until:
        before = processor_seconds(pid)
        await asyncio.sleep(REST_LOOK_S)
        if processor_seconds(pid) - before < REST_SHARE * REST_LOOK_S:
            return


async def _make(client: BrokerClient, number: int) -> None:
    name = f"queue-{number:05}"
    await client.call("queue.declare", vhost="/", name=name, durable=True)
    await client.call(
        "binding.create",
        vhost="/",
        source="amq.direct",
        destination=name,
        destination_type="queue",
        routing_key=f"key-{number % 100}",
    )


async def idle(pid: int, options: argparse.Namespace) -> None:
    """Prints shares of a processor, in per cent, while nothing is asked: medians of the windows."""
    shares: dict[int, list[float]] = {pid: []}
    async with filled(0, False) as (beside, _):
        empty = beside.pids["broker"]
        shares[empty] = []
        await asyncio.sleep(15)
        for _ in range(options.windows):
            before, began = {each: processor_seconds(each) for each in shares}, time.monotonic()
            await asyncio.sleep(options.idle)
            seconds = time.monotonic() - began
            for each, spent in before.items():
                shares[each].append((processor_seconds(each) - spent) / seconds * 100)
    whole, without = (statistics.median(shares[each]) for each in (pid, empty))
    windows = " ".join(f"{share:.2f}" for share in shares[pid])
    print(f"{'idle':32} {whole:7.2f} % of a processor (windows: {windows})", flush=True)
    print(f"{'idle, without queues':32} {without:7.2f} % of a processor", flush=True)


async def lists(pid: int, client: BrokerClient, rounds: int) -> None:
    """Median time of an answer and mean processor time of the broker, for each list."""
    for name, arguments in LISTS.items():
        times = []
        await client.call("list", **arguments)
        before = processor_seconds(pid)
        for _ in range(rounds):
            began = time.perf_counter()
            await client.call("list", **arguments)
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.02)
        spent = (processor_seconds(pid) - before) / rounds * 1000
        print(f"{name:32} {statistics.median(times):7.1f} ms   broker {spent:6.2f} ms", flush=True)


async def run(options: argparse.Namespace) -> None:
    async with filled(options.queues, options.messages) as (appliance, client):
        pid = appliance.pids["broker"]
        if options.idle:
            await idle(pid, options)
        await lists(pid, client, options.rounds)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.screens", description=__doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--messages", action="store_true", help="one message in each queue")
    parser.add_argument("--idle", type=float, default=20, help="seconds; 0: not measured")
    parser.add_argument("--windows", type=int, default=3, help="of so many seconds each")
    parser.add_argument("--rounds", type=int, default=20, help="of each list")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
