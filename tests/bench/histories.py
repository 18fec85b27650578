"""`make bench ARGS=--history`: what an index and a history cost a publisher.

S2 and S3 with a message_id in each message: with a stream as the queue, without and with an index
of message_id; and with a classic queue, without a history and with one of headers, found by
message_id. The two of a pair are measured after each other in the same round, which of them comes
first changes from round to round, and what counts is the median of their ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from management.broker_client import BrokerClient
from tests.bench import generator, limits
from tests.bench.leveret import Leveret
from tests.bench.scenarios import CONFIRMED

SIZES = {"S2": "16", "S3": "1024"}
STREAM = ("--type", "stream")
IDS = "message_id"
HISTORY = {"history": "headers", "history-keys": IDS}
EVENTS = HISTORY | {"history-events": True}


class Pair(NamedTuple):
    """What is measured beside what: options of the generator, and a policy. `least` is the ratio
    of the rates that is wanted; None: none is."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    policy: dict[str, Any] | None
    least: float | None


PAIRS = (
    Pair("stream, indexed by message_id", STREAM, (*STREAM, "--index", IDS), None, 0.85),
    Pair("classic queue, history of headers", (), (), HISTORY, 0.70),
    Pair("the same with history-events", (), (), EVENTS, None),
)


class Figures(NamedTuple):
    """Ratios of one pair over the rounds, and the rates."""

    rates: list[float]
    cpu: list[float]
    before: list[float]
    after: list[float]


async def set_policy(broker: Leveret, definition: dict[str, Any] | None) -> None:
    """Sets the policy of all queues, or takes it away with the history that it made."""
    client = BrokerClient(broker.directory / "data/control.sock")
    try:
        if definition is not None:
            await client.call(
                "policy.put", vhost="/", name="bench", pattern="^bench", definition=definition
            )
            return
        rows = await client.call("list", noun="policies", vhost="/")
        if rows["items"]:
            await client.call("policy.delete", vhost="/", name="bench")
            await client.call("queue.delete", vhost="/", name="amq.history")
    finally:
        await client.close()


def measure(
    broker: Leveret,
    size: str,
    options: tuple[str, ...],
    policy: dict[str, Any] | None,
    seconds: float,
) -> dict[str, Any]:
    asyncio.run(set_policy(broker, policy))
    try:
        arguments = [*CONFIRMED, "--body", size, "--ids", *options]
        arguments += ["--warmup", "1", "--duration", str(seconds)]
        return generator.run(broker.port, arguments, broker.pids())
    finally:
        if policy is not None:
            asyncio.run(set_policy(broker, None))


def rounds_of(broker: Leveret, pair: Pair, size: str, rounds: int, seconds: float) -> Figures:
    found = Figures([], [], [], [])
    for number in range(rounds):
        sides = [(pair.before, None), (pair.after, pair.policy)]
        if number % 2:
            sides.reverse()
        results = [measure(broker, size, *side, seconds) for side in sides]
        if number % 2:
            results.reverse()
        before, after = results
        found.before.append(before["rate"])
        found.after.append(after["rate"])
        found.rates.append(after["rate"] / before["rate"])
        found.cpu.append(after["cpu_us_per_message"] / before["cpu_us_per_message"])
    return found


def shown(name: str, pair: Pair, found: Figures) -> str:
    ratio = statistics.median(found.rates)
    wanted = "" if pair.least is None else f"{pair.least:.2f} {_met(ratio >= pair.least)}"
    spread = f"{min(found.rates):.2f} to {max(found.rates):.2f}"
    rates = f"{statistics.median(found.before):,.0f} | {statistics.median(found.after):,.0f}"
    cpu = f"{statistics.median(found.cpu):.2f}"
    return f"| {name}, {pair.name} | {rates} | {ratio:.2f} | {spread} | {cpu} | {wanted} |"


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def main(options: argparse.Namespace, base: Path) -> int:
    """Prints the table; 1 if a target was missed."""
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = options.seconds or (1.5 if options.quick else 4.0)
    names = options.only.split(",") if options.only else list(SIZES)
    sync = limits.measure_sync(base)
    print(
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {rounds} rounds of {seconds:g} s,"
    )
    print(f"a sync takes {sync.p50_ms:.2f} ms")
    print("| Row | Without /s | With /s | Ratio | Least to most | CPU ratio | Wanted |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    figures: dict[str, Any] = {}
    is_missed = False
    for name in names:
        for pair in PAIRS:
            broker = Leveret(
                base / f"{name} {pair.name}".replace(" ", "-"), options.leveret_args.split()
            )
            broker.start()
            try:
                found = rounds_of(broker, pair, SIZES[name], rounds, seconds)
            finally:
                broker.stop()
            figures[f"{name}, {pair.name}"] = found._asdict()
            is_missed |= pair.least is not None and statistics.median(found.rates) < pair.least
            print(shown(name, pair, found))
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return int(is_missed)
