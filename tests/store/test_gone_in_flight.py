"""Segments and queues that go while the round that makes their files is on its way."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from broker.fields import properties
from broker.queues.classic import ClassicQueue
from broker.store.commit.sync_method import EACH, SyncMethod
from tests.store import recorder
from tests.store.driven import PROPERTIES, Driven, Taker


@pytest.mark.parametrize("queues", [1, 2, 5])
@pytest.mark.parametrize("how", ["purge", "delete"])
def test_a_file_that_goes_before_it_is_opened_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queues: int, how: str
) -> None:
    """With several files to sync other threads take part; the disk is fine all the same."""
    driven = Driven(tmp_path, start=False)
    others = [
        ClassicQueue(
            driven.turn,
            driven.persister,
            str(driven.parent),
            "/",
            f"q{number}",
            1 << 32 | (100 + number),
            durable=True,
            arguments=None,
        )
        for number in range(queues - 1)
    ]
    # One sync for each file, from the first round on.
    monkeypatch.setattr(SyncMethod, "choose", lambda method, files: EACH)
    for queue in (driven.queue, *others):
        for _ in range(3):
            queue.put(b"", b"q", PROPERTIES, bytes(40_000), True)
    told: list[bool] = []
    driven.persister.after_round(lambda: told.append(True))
    # The turn ends: the round is handed over, and no thread has begun with it.
    callbacks, driven.callbacks[:] = driven.callbacks[:], []
    for callback in callbacks:
        callback()
    getattr(driven.queue, how)()
    driven.persister.start()
    driven.pump(lambda: bool(told))
    assert driven.failed is None
    for queue in (driven.queue, *others) if how == "purge" else others:
        queue.put(b"", b"q", PROPERTIES, b"another", True)
    driven.sync()
    assert driven.failed is None
    for queue in others:
        queue.close()
    driven.stop()


def test_a_deleted_queue_stays_in_memory_while_the_disk_reads_for_it(tmp_path: Path) -> None:
    """The reading thread writes into its buffer, whatever the garbage collector finds meanwhile."""
    driven = Driven(tmp_path)
    driven.publish(b"a message")
    driven.stop()
    driven = Driven(tmp_path)
    driven.recover()
    reader = driven.persister.reader
    recorder.stall("read", 60)
    try:
        driven.queue.get(Taker())
        driven.queue.wake()
        driven.pump(lambda: reader.open == 1)
        store = weakref.ref(driven.queue.store)
        driven.queue.delete()
        del driven.queue
        # No round holds it, nor what is done in the background.
        driven.tick()
        gc.collect()
        assert reader.open == 1
        assert store() is not None
    finally:
        recorder.stall("read", 0)
    driven.pump(lambda: reader.open == 0)
    driven.tick()
    gc.collect()
    assert store() is None
    driven.kill()


def test_a_directory_stays_until_the_last_priority_has_no_file_in_flight(tmp_path: Path) -> None:
    driven = Driven(tmp_path, arguments={"x-max-priority": 3})
    driven.publish(b"of priority 0")
    driven.sync()
    told: list[bool] = []
    recorder.stall("open", 60)
    try:
        driven.queue.put(b"", b"q", properties.encode({"priority": 3}), b"of priority 3", True)
        driven.persister.after_round(lambda: told.append(True))
        # The turn ends: the writer is about to make the file.
        driven.pump(lambda: driven.persister.gathering > driven.persister.completed + 1)
        driven.queue.delete()
        # The remover works in order: when this is there, all that the delete asked for is done.
        driven.persister.background.write_files(str(tmp_path / "fence"), {"passed": b""})
        driven.pump((tmp_path / "fence/passed").exists)
    finally:
        recorder.stall("open", 0)
    driven.pump(lambda: bool(told))
    driven.pump(lambda: not driven.directory.exists())
    assert driven.failed is None
    driven.kill()
