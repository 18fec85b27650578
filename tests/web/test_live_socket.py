"""What the web process keeps of the broker's pushes, for tabs that come later or read slowly."""

from typing import Any

import pytest

from management import live


def test_it_merges_changed_values() -> None:
    known = {"messages": 1, "stats": {"nested": 2}}
    assert live.merged(known, {"messages": 3, "stats.nested": 4}) == {
        "messages": 3,
        "stats": {"nested": 2},
        "stats.nested": 4,
    }
    assert known["messages"] == 1


def test_it_merges_rows_by_their_key() -> None:
    known = {"rows": [[["/", "a"], {"x": 1, "y": 1}], [["/", "b"], {"x": 1}]]}
    changes = {"rows": [[["/", "a"], {"x": 2}], [["/", "b"], None], [["/", "c"], {"x": 5}]]}
    assert live.merged(known, changes)["rows"] == [
        [["/", "a"], {"x": 2, "y": 1}],
        [["/", "b"], None],
        [["/", "c"], {"x": 5}],
    ]


def test_a_slow_page_gets_the_newest_values_and_nothing_piles_up() -> None:
    consumer = live.LiveConsumer()
    consumer.ready, consumer.has_ready = {}, live.asyncio.Event()
    consumer._take(1, "start", 10, {"a": 1, "b": 1})
    for count in range(1000):
        consumer._take(1, "delta", 11 + count, {"a": count})
    assert consumer.ready == {1: {"event": "start", "at": 1010, "data": {"a": 999, "b": 1}}}


def test_a_slow_page_gets_each_event_up_to_a_limit() -> None:
    consumer = live.LiveConsumer()
    consumer.ready, consumer.has_ready = {}, live.asyncio.Event()
    for count in range(live.EVENTS_AT_MOST + 50):
        consumer._take(2, "queue.created", count, {"name": str(count)})
    events = consumer.ready[2]["events"]
    assert len(events) == live.EVENTS_AT_MOST
    assert events[-1][2] == {"name": str(live.EVENTS_AT_MOST + 49)}


@pytest.mark.parametrize(
    "request_",
    [
        {"topic": "secrets"},
        {"topic": "rows", "noun": "nonsense", "keys": []},
        {"topic": "rows", "noun": "queues"},
        {"topic": "rows", "noun": "queues", "keys": [["/", "a"]] * (live.LIVE_KEYS_MAX + 1)},
        {"topic": "item", "noun": "queues"},
    ],
)
def test_it_refuses_what_is_no_subscription(request_: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)):
        live._arguments(request_)


def test_two_tabs_share_one_topic() -> None:
    arguments = {"topic": "item", "noun": "queues", "key": ["/", "a"], "history_s": 1}
    first = live.Topic.of("anna", dict(arguments))
    try:
        assert live.Topic.of("anna", dict(reversed(arguments.items()))) is first
        assert live.Topic.of("berta", arguments) is not first
    finally:
        live.Topic.open.clear()
