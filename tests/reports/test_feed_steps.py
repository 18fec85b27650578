"""Steps of one round of the usage feed, which the server takes between turns of its loop."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from pathlib import Path

from broker.features.usage.feed import FREED_PER_STEP, LINES_PER_STEP
from tests.reports.feeds import TEN, MadeUpBroker, MadeUpConnection, about, feed_of, run_round

MINUTE = 60_000


class ManyChannels(MadeUpConnection):
    channel_count = 2047


def test_a_step_reads_the_channels_of_few_connections(tmp_path: Path) -> None:
    """2,047 channels each made one step of 100 connections take 20 ms, and 90 on a busy machine."""
    broker = MadeUpBroker()
    for number in range(1, 21):
        broker.connection(number, "anna").__class__ = ManyChannels
    feed = feed_of(broker, tmp_path)
    assert run_round(feed.tick(TEN + MINUTE)) >= 20


def test_queues_that_end_during_a_round_are_let_go_of_in_steps(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    many = 1000
    there = weakref.WeakSet(broker.queue(str(number)) for number in range(many))
    feed = feed_of(broker, tmp_path)
    steps = feed.tick(TEN + MINUTE)
    assert steps is not None
    next(steps)
    while broker.vhost.queues:
        feed.queue_deleted(broker.vhost.queues.popitem()[1], TEN + MINUTE)
    gc.collect()
    assert len(there) > many * 0.9
    left = [len(there)]
    for step in steps:
        if step is not None:
            step()
        left.append(len(there))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= FREED_PER_STEP


def test_lines_of_queues_that_were_deleted_are_let_go_of_as_they_are_written(
    tmp_path: Path,
) -> None:
    """To free those of 100,000 queues at once is a turn of 20 ms."""
    broker = MadeUpBroker()
    feed, many = feed_of(broker, tmp_path), 1000
    for number in range(many):
        broker.queue(f"gone {number}").publish(1)
    while broker.vhost.queues:
        feed.queue_deleted(broker.vhost.queues.popitem()[1], TEN)
    waiting = feed._waiting
    left = [len(waiting)]
    assert left[0] == many
    for step in feed.tick(TEN + MINUTE) or ():
        if step is not None:
            step()
        left.append(len(waiting))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= LINES_PER_STEP
    assert len(about(tmp_path, "queue")) == many
