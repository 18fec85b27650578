"""Confirms and latencies, counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.client.errors import ProtocolError
from broker.client.measuring import Histogram
from broker.client.unconfirmed import Unconfirmed
from tests.inner import publish, settle


@settings(max_examples=100)
@given(data=st.data())
def test_confirms_in_any_order_settle_each_publish_once(data: st.DataObject) -> None:
    """Against a set of what is outstanding."""
    histogram = Histogram()
    unconfirmed = Unconfirmed(histogram)
    outstanding: set[int] = set()
    counts = {True: 0, False: 0}
    for _ in range(data.draw(st.integers(1, 60))):
        if not outstanding or data.draw(st.booleans()):
            for _ in range(data.draw(st.sampled_from([1, 5, 3000]))):
                outstanding.add(publish(unconfirmed))
        else:
            tag = data.draw(st.sampled_from(sorted(outstanding)[:50]))
            multiple, ack = data.draw(st.booleans()), data.draw(st.booleans())
            settled = {one for one in outstanding if one <= tag} if multiple else {tag}
            settle(unconfirmed, tag, multiple, ack)
            outstanding -= settled
            counts[ack] += len(settled)
        assert unconfirmed.count == len(outstanding)
        assert unconfirmed.base == min(outstanding, default=unconfirmed.next)
        assert (unconfirmed.acked, unconfirmed.nacked) == (counts[True], counts[False])
    assert histogram.count == sum(counts.values())
    settle(unconfirmed, 0, True, True)
    assert unconfirmed.count == 0


def test_a_confirm_that_was_given_already_is_the_servers_fault() -> None:
    unconfirmed = Unconfirmed()
    assert [publish(unconfirmed) for _ in range(3)] == [1, 2, 3]
    settle(unconfirmed, 2, False, True)
    for tag, multiple in ((2, False), (4, False), (4, True), (0, False)):
        with pytest.raises(ProtocolError):
            settle(unconfirmed, tag, multiple, True)
    assert unconfirmed.count == 2


@settings(max_examples=50)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.floats(0, 1))
def test_percentiles_are_exact_to_a_64th(times: list[int], part: float) -> None:
    histogram = Histogram()
    for one in times:
        histogram.record(one)
    wanted = sorted(times)[max(0, min(len(times), int(part * len(times) + 0.999999)) - 1)]
    found = histogram.percentile(part)
    if part * len(times) >= 1e-6:
        assert wanted <= found <= wanted * (1 + 1 / 64) + 1
    assert (histogram.count, histogram.highest) == (len(times), max(times))
    histogram.clear()
    assert histogram.percentile(0.5) == 0
