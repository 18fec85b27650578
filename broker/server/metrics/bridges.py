"""Metrics of shovels and of links of federation: how many there are in each state, and what they
have moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.server.metrics.lines import head, line

if TYPE_CHECKING:
    from broker.server.app import Broker

STATES = ("starting", "running", "blocked", "paused", "error", "stopped")
LINK_STATES = tuple(state for state in STATES if state != "paused")
_SHOVELS = (
    ("moved", "Messages that arrived at the destinations of shovels"),
    ("refused", "Answers of destinations of shovels that refused a message"),
    ("dropped", "Messages that shovels dropped because they were refused"),
    ("dead_lettered", "Messages that shovels dead-lettered because they were refused"),
)
_LINKS = (
    ("moved", "Messages that came over links of federation"),
    ("refused", "Answers of this broker that refused a message of a link of federation"),
    ("connects", "Times that links of federation have connected"),
)


def bridge_metrics(broker: Broker, of_all: bool) -> Iterator[str]:
    """Sums, or with `of_all` false the lines of each shovel and each link."""
    if broker.shovels is not None:
        name, text = "shovel_dynamic", "Shovels in a state"
        yield from _states(broker.shovels, name, text, STATES)
        yield from _counts(broker.shovels, "shovel_messages", _SHOVELS, of_all)
    if broker.federation is not None:
        name, text = "federation_links", "Links of federation in a state"
        yield from _states(broker.federation, name, text, LINK_STATES)
        yield from _counts(broker.federation, "federation_link_messages", _LINKS, of_all)


def _states(feature: Any, name: str, text: str, states: tuple[str, ...]) -> Iterator[str]:
    yield head(name, "gauge", text)
    counted = Counter(state for _, state, _ in feature.tallies())
    for state in states:
        yield line(name, counted[state], {"status": state})


def _counts(
    feature: Any, prefix: str, rows: tuple[tuple[str, str], ...], of_all: bool
) -> Iterator[str]:
    for count, text in rows:
        # Connections are no messages.
        start = prefix.removesuffix("_messages") if count == "connects" else prefix
        name = f"{start}_{count}_total"
        yield head(name, "counter", text)
        if of_all:
            living = sum(counts[count] for _, _, counts in feature.tallies())
            yield line(name, living + feature.gone[count])
            continue
        for labels, _, counts in list(feature.tallies()):
            yield line(name, counts[count], labels)
