"""Steps of one sample of the statistics."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server.app import Broker
from broker.stats import sampler
from broker.stats.scan import Sums, finish, scan
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


async def test_channels_that_end_during_a_sample_are_passed_over_in_short_steps(
    broker: Broker, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To free those of several connections at once is a turn of 20 ms."""
    client = await connect(broker, "anna")
    for number in range(2, 2048):
        client.call(number, "channel.open")
    await until(lambda: len(client.session.channels) == 2047)
    kept: list[int] = [0]

    def noted(kind: str, things: list[Any], start: int, *more: Any) -> int:
        continued_at = scan(kind, things, start, *more)
        kept[-1] += continued_at - start
        return continued_at

    monkeypatch.setattr(sampler, "scan", noted)
    for channel in client.session.channels.values():
        finish("channel", channel, Sums())
    clock.now += 1000
    for _ in broker.stats.sample(broker):
        kept.append(0)
    assert sum(kept) >= 2048
    assert max(kept) <= 600
