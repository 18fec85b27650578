"""Steps of one sample of the statistics."""

from __future__ import annotations

from broker.server.app import Broker
from tests.amqp import raw
from tests.inside import Clock, connect, sample, until


async def test_it_looks_at_the_channels_of_one_connection_in_short_steps(
    broker: Broker, clock: Clock
) -> None:
    """2,047 channels each made one step of 100 connections take 100 ms."""
    client = await connect(broker, "anna")
    for number in range(2, 2048):
        client.call(number, "channel.open")
    await until(lambda: len(client.session.channels) == 2047)
    longest, before = 0, 0
    clock.now += 1000
    for _ in broker.stats.sample(broker):
        longest, before = max(longest, broker.stats.looked - before), broker.stats.looked
    assert before >= 2048
    assert longest <= 600
    client.feed(raw.publish(2000, "", "unroutable") * 7)
    await client.fence()
    sample(broker, clock)
    assert broker.stats.node.counters["publish"] == 7
    assert broker.stats.node.levels["channels"] == 2047
