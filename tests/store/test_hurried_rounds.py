"""While turns follow at once, with a sleep behind each, a round for a queue's confirms begins in
the second turn only, with the messages of both; nothing waits longer, and nothing else waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inner import Publisher
from tests.store.driven import PROPERTIES, Driven
from tests.store.test_open_files import queues


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    driven = Driven(tmp_path)
    driven.sync()
    driven.persister.second_turn.is_hurried = True
    yield driven
    driven.kill()


def publish(driven: Driven, publisher: Publisher) -> None:
    """One message that is to be confirmed."""
    driven.publish(b"body")
    publisher.want_confirm(driven.persister)


def begun(driven: Driven) -> bool:
    """Ends a turn. Whether a round began in it."""
    before = driven.persister.gathering
    driven.callbacks.clear()
    driven.turn.run()
    return driven.persister.gathering > before


def test_the_messages_of_two_turns_are_one_round(driven: Driven) -> None:
    publisher = Publisher()
    rounds = driven.persister.gathering
    publish(driven, publisher)
    assert not begun(driven)
    publish(driven, publisher)
    assert begun(driven)
    driven.pump(lambda: publisher.confirmed > 0)
    assert driven.failed is None
    assert driven.persister.gathering == rounds + 1
    assert not driven.persister.waits_for_disk


def test_a_round_that_waits_asks_for_the_next_turn(driven: Driven) -> None:
    """Nothing else may come."""
    publisher = Publisher()
    publish(driven, publisher)
    assert not begun(driven)
    assert driven.callbacks == [driven.turn.run]
    driven.pump(lambda: publisher.confirmed > 0)
    assert publisher.confirmed == 1


def test_each_round_waits_for_no_more_than_one_turn(driven: Driven) -> None:
    publisher = Publisher()
    for number in range(1, 20):
        publish(driven, publisher)
        assert not begun(driven)
        publish(driven, publisher)
        assert begun(driven)
        driven.pump(lambda number=number: publisher.confirmed == number)  # type: ignore[misc]
    assert driven.failed is None


def test_publishers_that_wait_for_their_confirms_wait_for_no_turn(driven: Driven) -> None:
    """They publish nothing meanwhile. Now and then a round waits again."""
    publisher = Publisher()
    waited = []
    for number in range(1, 200):
        publish(driven, publisher)
        waited.append(not begun(driven))
        driven.pump(lambda number=number: publisher.confirmed == number)  # type: ignore[misc]
    assert waited[0]
    assert 4 <= sum(waited) <= 8


def test_a_round_begins_at_once_where_the_loop_has_time(driven: Driven) -> None:
    driven.persister.second_turn.is_hurried = False
    publish(driven, Publisher())
    assert begun(driven)


def test_a_round_of_several_queues_begins_at_once(driven: Driven) -> None:
    for queue in queues(driven, 2):
        queue.put(b"", b"q", PROPERTIES, b"body", True)
    Publisher().want_confirm(driven.persister)
    assert begun(driven)


def test_a_reply_that_waits_for_the_disk_does_not_wait_for_a_turn(driven: Driven) -> None:
    publish(driven, Publisher())
    driven.persister.after_round(lambda: None)
    assert begun(driven)


def test_a_round_begins_at_once_while_the_memory_for_unwritten_messages_is_full(
    driven: Driven,
) -> None:
    publish(driven, Publisher())
    more = driven.persister.tail_limit
    driven.persister.tail_bytes += more
    assert begun(driven)
    driven.persister.tail_bytes -= more
