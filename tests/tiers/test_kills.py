"""A kill between any two steps of an upload, of a file that leaves the disk, of what retention and
a purge drop, and of a deletion: nothing that was confirmed is lost, and no object is left over."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.schema.tier_work import Answer, Task
from broker.store.directory.threaded_journal import ThreadedJournal
from broker.store.files import gate
from tests.tiers.rig import NAME, TIERED, Tiered


class Killed(Tiered):
    """Notes the state of directory and store at every step, as a kill would leave it."""

    first = 0
    """The first message that has to be there."""
    confirmed = 0
    is_there = True

    def note(self, what: str) -> None:
        place = self.directory.parent / f"state-{len(self.states)}"
        place.mkdir()
        with gate.shut():
            self.copied(place)
        self.states.append((place, what, self.first, self.confirmed, self.is_there))

    states: list[tuple[Path, str, int, int, bool]]

    def rest(self) -> None:
        """The tiers process is as quick as can be: it does not wait for what is not synced."""
        while self.work_off() or self.tasks:
            pass
        self.tick()
        while self.tasks:
            self.work_off()
            self.tick()

    def work_off(self) -> bool:
        tasks, self.tasks[:] = self.tasks[:], []
        for task in tasks:
            self.note(f"before {task.kind}")
            answer = self.work.carry_out(task)
            self.note(f"{task.kind} done and not told")
            self.tiers.carrier.answered(answer)
            self.note(f"{task.kind} told")
        return bool(tasks)


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    rig = Killed(tmp_path / "data", tmp_path / "store", tier_grace=0.0)
    rig.states = []
    written = ThreadedJournal._written

    def noting(journal: ThreadedJournal, done: Callable[[str], Any]) -> None:
        rig.note(f"{journal.path[-20:]} synced and not told")
        written(journal, done)
        rig.note(f"{journal.path[-20:]} synced and told")

    monkeypatch.setattr(ThreadedJournal, "_written", noting)
    rig.start()
    monkeypatch.setattr(ThreadedJournal, "_written", noting)
    return rig


def script(rig: Killed) -> None:
    """Uploads, retention, a purge, more uploads, the end of the stream."""
    rig.declare()
    rig.connect()
    rig.publish(12)
    rig.confirmed = 12
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)
    rig.first = 8
    rig.stream.reconfigure({**TIERED, "x-max-length": 5})
    rig.stream.reconfigure(TIERED)
    rig.first = rig.stream.store.first_offset
    rig.second()
    rig.second()
    rig.first = 12
    rig.stream.purge()
    rig.sync()
    rig.second()
    rig.publish(7)
    rig.confirmed = 19
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)
    rig.is_there = False
    queue = rig.stream
    rig.vhost.delete_queue(NAME)
    rig.tiers.queue_deleted(queue, 0)
    rig.until(lambda: not rig.objects())


def test_a_kill_between_any_two_steps_loses_nothing_and_leaves_nothing(noted: Killed) -> None:
    script(noted)
    noted.kill()
    assert len(noted.states) > 60
    seen = set()
    for place, what, first, confirmed, is_there in noted.states:
        seen.add(what.split()[-4] if "synced" in what else what)
        rig = Tiered(place / "data", place / "store", tier_grace=0.0).start()
        try:
            assert rig.problems == [], what
            rig.connect()
            for _ in range(3):
                rig.second()
            listed = set()
            if NAME in rig.vhost.queues:
                found = rig.offsets()
                assert found == list(
                    range(min(found, default=0), len(found) + min(found, default=0))
                )
                if is_there:
                    assert set(range(first, confirmed)) <= set(found), what
                store = rig.stream.store
                listed = {each.tiered.name for each in store.summaries if each.tiered}
            else:
                assert not is_there, what
            assert rig.objects() == listed, what
        finally:
            rig.kill()
            shutil.rmtree(place)


def test_what_the_process_did_when_it_was_killed_is_found_again(tmp_path: Path) -> None:
    """The tiers process ends with every task: after it was done, or before."""
    rig = Tiered(tmp_path / "data", tmp_path / "store").start()
    try:
        rig.declare()
        rig.publish(12)
        ends = 0

        def end(task: Task) -> Answer | None:
            nonlocal ends
            ends += 1
            if ends % 3 == 0:
                return None
            if ends % 3 == 1:
                rig.work.carry_out(task)
            return Answer(task.id, "away", "the process was killed")

        rig.answer = end
        rig.connect()

        def all_cold() -> bool:
            if not rig.tiers.may_write:
                rig.tiers.disconnected()
                rig.connect()
            return rig.cold() == len(rig.stream.store.summaries) - 1

        rig.until(all_cold)
        rig.answer = lambda _: None
        assert rig.offsets() == list(range(12))
        assert len(rig.objects()) == rig.cold()
    finally:
        rig.kill()
