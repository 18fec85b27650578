"""Metrics of shovels: how many there are in each state, and what they have moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.server.metrics.lines import head, line

if TYPE_CHECKING:
    from broker.server.app import Broker

STATES = ("starting", "running", "blocked", "paused", "error", "stopped")
_COUNTS = (
    ("moved", "Messages that arrived at the destinations of shovels"),
    ("refused", "Answers of destinations of shovels that refused a message"),
    ("dropped", "Messages that shovels dropped because they were refused"),
    ("dead_lettered", "Messages that shovels dead-lettered because they were refused"),
)


def shovel_metrics(broker: Broker, of_all: bool) -> Iterator[str]:
    """Sums, or with `of_all` false the lines of each shovel."""
    if broker.shovels is None:
        return
    rows = list(broker.shovels.rows())
    name = "shovel_dynamic"
    yield head(name, "gauge", "Shovels in a state")
    counted = Counter(row["state"] for row in rows)
    for state in STATES:
        yield line(name, counted[state], {"status": state})
    for count, text in _COUNTS:
        name = f"shovel_messages_{count}_total"
        yield head(name, "counter", text)
        if of_all:
            yield line(name, sum(row["counts"][count] for row in rows))
            continue
        for row in rows:
            labels = {"vhost": row["vhost"], "shovel": row["name"]}
            yield line(name, row["counts"][count], labels)
