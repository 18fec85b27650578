"""A segment whose last message goes while the round that makes its file is on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.queues.classic import ClassicQueue
from broker.store.sync_method import EACH, SyncMethod
from tests.store.driven import PROPERTIES, Driven


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
