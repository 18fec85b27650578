"""Steps of one sample of the statistics."""

from __future__ import annotations

from tests.control.stand_in import Broker
from tests.control.test_stats import Clock, broker, clock, sample

__all__ = ["broker", "clock"]


def test_it_looks_at_the_channels_of_one_connection_in_short_steps(
    broker: Broker, clock: Clock
) -> None:
    """2,047 channels each made one step of 100 connections take 100 ms."""
    connection = broker.connect("anna")
    for number in range(2, 2048):
        connection.channels[number] = type(connection.channels[1])(connection, number)
    longest, before = 0, 0
    clock.now += 1000
    for _ in broker.stats.sample(broker):
        longest, before = max(longest, broker.stats.looked - before), broker.stats.looked
    assert before >= 2048
    assert longest <= 600
    connection.channels[2000].published = 7
    sample(broker, clock)
    assert broker.stats.node.counters["publish"] == 7
    assert broker.stats.node.levels["channels"] == 2047
