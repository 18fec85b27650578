"""A queue's directory goes with the queue, whether or not it has a store at that time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store import recorder
from tests.store.driven import Driven


def idle(driven: Driven) -> None:
    """The queue has had nothing to do for long."""
    driven.queue.rest_if_idle(0.0, 0.0)
    driven.queue.rest_if_idle(1.0, 0.0)


def gone(driven: Driven) -> None:
    driven.pump(lambda: not driven.directory.exists())
    assert driven.failed is None


@pytest.mark.parametrize("arguments", [None, {"x-max-priority": 3}], ids=["plain", "priorities"])
@pytest.mark.parametrize("where", ["at rest", "after a start", "used again"])
def test_an_empty_queue_leaves_no_directory(
    tmp_path: Path, where: str, arguments: dict[str, int] | None
) -> None:
    driven = Driven(tmp_path, arguments=arguments)
    driven.publish(b"a message")
    driven.sync()
    driven.settle(driven.take())
    driven.tick()
    idle(driven)
    driven.tick()
    assert driven.directory.exists()
    if where == "after a start":
        driven.stop()
        driven = Driven(tmp_path, arguments=arguments)
        assert driven.recover() == []
        assert driven.queue.store is None
    elif where == "used again":
        driven.publish(b"another message")
        driven.sync()
    driven.queue.delete()
    gone(driven)
    driven.kill()


def test_a_queue_without_a_message_asks_the_disk_for_nothing(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    driven.queue.delete()
    assert driven.persister.background.remover.open == 0
    assert driven.queue.store is None
    driven.kill()


def test_a_queue_has_no_store_any_more_when_it_had_no_traffic_for_the_time_given(
    tmp_path: Path,
) -> None:
    driven = Driven(tmp_path)

    def has_store(now: float) -> bool:
        driven.queue.rest_if_idle(now, 10.0)
        driven.tick()  # its file goes
        driven.queue.rest_if_idle(now, 10.0)
        return driven.queue.store is not None

    for now in (100.0, 150.0):
        driven.publish(b"a message")
        driven.sync()
        driven.settle(driven.take())
        driven.tick()
        assert has_store(now)
    assert has_store(159.0)
    assert not has_store(160.0)
    driven.kill()


def test_an_idle_queue_keeps_its_store_until_its_last_file_is_gone(tmp_path: Path) -> None:
    """A file in flight goes later, and the directory after it."""
    driven = Driven(tmp_path)
    told: list[bool] = []
    driven.publish(b"a message")
    driven.sync()
    recorder.stall("write", 60)
    try:
        driven.publish(b"another message")
        driven.persister.after_round(lambda: told.append(True))
        driven.pump(lambda: driven.persister.writer.open == 1)
        driven.queue.purge()
        idle(driven)
        driven.queue.delete()
    finally:
        recorder.stall("write", 0)
    gone(driven)
    driven.kill()
