"""Allocations per message on the fast path, counted by Python's allocator."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import counted, generator
from tests.bench.leveret import Leveret

MESSAGES = 100_000
BUDGET = 0.05
"""Objects per message: one in twenty. Those of a turn are some hundredth of it, the fewer the more
messages a turn takes; a busy machine has shorter turns."""
RUNS_MAX = 15


@pytest.fixture
def counted_broker(tmp_path: Path) -> Iterator[Leveret]:
    counted.build()
    command = [sys.executable, "-m", "tests.bench.counted", "broker"]
    broker = Leveret(tmp_path, command=command)
    broker.environment["COUNT_ALLOCATIONS_IN"] = str(tmp_path / "allocations")
    broker.start()
    yield broker
    broker.stop()


def allocations_per_message(broker: Leveret, options: list[str]) -> float:
    """Between message 10,000 and message 110,000 of one run; the generator reads the counter."""
    counter = str(broker.directory / "allocations")
    fixed = ["--probe", counter, "--warmup-count", "10000", "--count", str(MESSAGES)]
    result = generator.run(broker.port, [*fixed, *options])
    assert result["published"] == MESSAGES + 10_000
    return float(result["probe"]) / MESSAGES


@pytest.mark.parametrize(
    "options",
    [
        ["--in-flight", "20000"],
        ["--fanout", "4", "--consumers", "4", "--in-flight", "20000"],
        ["--persistent", "--confirm", "50000", "--ack", "1000", "--prefetch", "50000"],
    ],
    ids=["transient-auto-ack", "fan-out", "persistent-confirms-acks"],
)
def test_it_allocates_no_object_per_message(counted_broker: Leveret, options: list[str]) -> None:
    """The least of some runs: how many messages a turn of the loop takes is up to the machine."""
    counts: list[float] = []
    while len(counts) < RUNS_MAX and min(counts, default=BUDGET) >= BUDGET:
        counts.append(allocations_per_message(counted_broker, options))
    assert min(counts) < BUDGET, counts


def test_what_it_allocates_belongs_to_turns_of_the_loop_not_to_messages(
    counted_broker: Leveret,
) -> None:
    """A window of 1,000 means about 100 messages a turn: some 25 objects a turn, of which asyncio
    makes most, and none per message."""
    confirmed = ["--persistent", "--confirm", "1000", "--ack", "100", "--prefetch", "1000"]
    assert min(allocations_per_message(counted_broker, confirmed) for _ in range(5)) < 0.25


def test_the_counter_counts(counted_broker: Leveret) -> None:
    data = (counted_broker.directory / "allocations").read_bytes()
    (count,) = struct.unpack("=Q", data)
    assert count > 10_000
