"""A snapshot in the middle of what the store does: streams, delayed messages, shared bodies while
they are collected. It holds what a kill at that moment would have left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from broker.kernel import clock
from broker.store.directory import snapshot
from management.backup import Pace, copy_file
from tests.crash.explore import look, scratch
from tests.crash.profiles import PROFILES, Profile, shrunk
from tests.crash.workload import Workload

EVERY = 6


class BackedUp(Workload):
    """A workload with a snapshot every few steps, while a round and a collection are in hand."""

    def __init__(self, base: Path, seed: int, profile: Profile) -> None:
        self.base = base
        self.steps_done = 0
        self.copies = 0
        self.wrong: list[str] = []
        super().__init__(base / "data", seed, 60, profile)

    def _step(self) -> None:
        super()._step()
        self.steps_done += 1
        if self.steps_done % EVERY == 0:
            self._back_up()

    def _back_up(self) -> None:
        self.inside.persister.after_round(lambda: None)
        self.inside.turns()
        self.inside.vhost.bodies.tick(clock.now() / 1000)
        snapshot.take(self.root)
        moment = self.moment()
        target = self.base / "copy"
        target.mkdir()
        rows = (Path(self.root) / "snapshot/files").read_text().splitlines()
        for path, length, mode in map(json.loads, rows):
            if path.endswith("/"):
                (target / path).mkdir()
            else:
                source = Path(self.root) / "snapshot/tree" / path
                copy_file(source, target / path, length, mode, Pace(say=lambda _text: None))
        snapshot.drop(self.root)
        self.copies += 1
        found = look(target, self.profile)
        shutil.rmtree(target)
        wrong = self.promises.violations(found, moment, killed=True)
        self.wrong += [f"at step {self.steps_done}: {each}" for each in wrong]


@pytest.mark.parametrize("kind", ["bodies", "index", "logs", "parts"])
def test_a_snapshot_holds_what_a_kill_would_have_left(kind: str) -> None:
    base = scratch()
    try:
        with shrunk():
            workload = BackedUp(base, 5, PROFILES[kind])
    finally:
        shutil.rmtree(base)
    assert workload.wrong == []
    assert workload.copies == 60 // EVERY
