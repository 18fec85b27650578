"""Where a run of the broker begins and ends in the usage feed."""

from __future__ import annotations

from pathlib import Path

from tests.reports.feeds import TEN, MadeUpBroker, about, feed_of, run_round
from tests.reports.test_feed import COUNTING, MINUTE


def test_the_first_round_of_a_run_has_every_queue_that_holds_something(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    broker.queue("holds").publish(5)
    broker.queue("empty")
    feed = feed_of(broker, tmp_path, interval_ms=10_000)
    run_round(feed.tick(TEN + 10_000))
    # `without_gone` of the reports relies on it.
    assert [(line["name"], line["messages"]) for line in about(tmp_path, "queue")] == [("holds", 5)]


def test_a_clean_stop_ends_the_queues_that_are_not_durable(tmp_path: Path) -> None:
    broker = MadeUpBroker()
    transient = broker.queue("transient")
    feed = feed_of(broker, tmp_path)
    assert not transient.durable
    transient.publish(5)
    run_round(feed.tick(TEN + MINUTE))
    transient.publish(2)
    feed.stop(TEN + MINUTE + 1000)
    first, last = about(tmp_path, *COUNTING)
    assert (first["publish"], first["messages"]) == (5, 5)
    assert last["publish"] == 2
    assert "messages" not in last
