"""The word of trouble of a queue, in C and slowly, over figures of any kind."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.queues.limits import Limits
from broker.stats import Gauge
from broker.stats.ordering import by_trouble
from broker.stats.trouble import having_word, limit_share, of_queue
from tests.oracles import troubles
from tests.sampled import SampledQueue

NOW = 1_000_000
STUCK_AFTER = 60.0

counts = st.integers(0, 3)


@st.composite
def queues(draw: st.DrawFn) -> Any:
    queue: Any = SampledQueue()
    queue.type = draw(st.sampled_from(["classic", "classic", "stream"]))
    queue.paused = draw(st.integers(0, 5)) == 0
    if draw(st.integers(0, 5)) == 0:
        queue.refusals = SimpleNamespace(is_going_on=draw(st.booleans()))
    arguments = draw(
        st.dictionaries(
            st.sampled_from(["x-max-length", "x-max-length-bytes"]), st.integers(1, 4), max_size=2
        )
    )
    queue.limits = Limits(arguments) if arguments else None
    queue.message_bytes_ready = queue.sampled["messages_ready"] = draw(counts)
    queue.sampled["messages_unacknowledged"] = draw(counts)
    queue.consumer_count = draw(st.integers(0, 1))
    if draw(st.booleans()):
        queue.gauge = gauge = Gauge("queue", NOW)
        row = [0.0] * len(gauge.names)
        for second in range(draw(st.integers(0, 3))):
            for name in ("publish", "redeliver", "ack", "messages_ready"):
                row[gauge.names.index(name)] += draw(st.sampled_from([0, 0, 1, 40]))
            gauge.add(NOW + second * 1000, row)
            gauge.grow(gauge.names.index("messages_ready"))
        gauge.acked_at = NOW - draw(st.sampled_from([0, 59_999, 60_000, 60_001]))
    return queue


@given(st.lists(queues(), max_size=4))
def test_it_is_the_word_of_the_slow_one(found: list[Any]) -> None:
    expected = [troubles.of_queue(one, one.gauge, NOW, STUCK_AFTER) for one in found]
    assert [of_queue(one, one.gauge, NOW, STUCK_AFTER) for one in found] == expected
    for word in {*expected, "stuck"}:
        having = [one for one, its in zip(found, expected, strict=True) if its == word]
        keys: list[float] = []
        chosen = having_word(found, {word: 3}, 0, len(found) + 1, NOW, STUCK_AFTER, keys)
        assert chosen == having
        in_order = array("d", bytes(8 * len(having)))
        by_trouble(having, {word: 3}, NOW, STUCK_AFTER, 0, len(having), in_order)
        assert keys == list(in_order)
    assert [limit_share(one) for one in found] == [troubles.limit_share(one) for one in found]
