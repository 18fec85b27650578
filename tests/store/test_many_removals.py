"""Very many removals that end at once: the loop has its turn between them."""

from __future__ import annotations

import select
from pathlib import Path

from tests.store.driven import Driven

MANY = 20_000


def test_removals_are_taken_back_in_slices_until_none_is_left(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    persister = driven.persister
    for _ in range(MANY):
        persister.background.write_files(str(tmp_path / "many"), {})
    remover = persister.background.remover
    # All have ended before the first is taken back.
    remover.stop()
    assert remover.open == MANY
    ready = select.poll()
    ready.register(remover.event_fd, select.POLLIN)
    turns = 0
    while remover.open:
        assert ready.poll(0), f"{remover.open} are left and no turn asks for them"
        persister.threads[remover]()
        turns += 1
    assert turns > 1
    told: list[bool] = []
    persister.after_round(lambda: told.append(True))
    driven.pump(lambda: bool(told))
