"""A location index on a full disk: what it has no room for waits, and nobody else does."""

from __future__ import annotations

import random
from pathlib import Path

import plyvel
import pytest

from broker.store.index import leveldb_index
from broker.store.index.backends import open_index
from broker.store.index.leveldb_index import LevelIndex
from broker.store.index.location_index import (
    ADD,
    CHANGE,
    ENTRY,
    REMOVE,
    IndexHasNoRoom,
    IndexSettings,
)
from tests.disks import SmallDisk
from tests.store.bodies_rig import Rig, body, settings_of
from tests.store.driven import ready

WRITE_BUFFER = 64 << 10


def opened(path: Path, *, clean: bool = False, bloom: int = 20_000) -> LevelIndex:
    settings = IndexSettings(backend="leveldb", write_buffer=WRITE_BUFFER, bloom_capacity=bloom)
    index = open_index(settings, str(path), clean)
    assert isinstance(index, LevelIndex)
    return index


def made(number: int) -> bytes:
    return number.to_bytes(16)


@pytest.fixture
def reckless(monkeypatch: pytest.MonkeyPatch) -> None:
    """LevelDB finds out by itself that the disk is full: somebody took the room of a write after we
    looked. There is none to open the database again, though."""
    room = leveldb_index.room
    monkeypatch.setattr(leveldb_index, "PAUSE_S", 0.0)
    monkeypatch.setattr(leveldb_index, "room", lambda path: room(path) + 2 * WRITE_BUFFER)


class Model:
    """An index beside a dictionary that has to hold the same."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.index = opened(path)
        self.held: dict[bytes, bytes] = {}
        self.random = random.Random(seed)
        self.next = 0

    def change(self, count: int) -> None:
        ids = list(self.held)
        for _ in range(count):
            what = self.random.choice((ADD, ADD, CHANGE, REMOVE)) if ids else ADD
            if what == ADD:
                id = made(self.next)
                self.next += 1
            else:
                id = self.random.choice(ids)
                if id not in self.held:
                    continue
            if what == REMOVE:
                del self.held[id]
                self.index.apply([(REMOVE, id, None)])
                continue
            self.held[id] = ENTRY.pack(1, self.random.randrange(1 << 30), 99, 2)
            self.index.apply([(what, id, self.held[id])])
        self.index.step()

    def check(self) -> None:
        assert self.index.count == len(self.held)
        for number in range(self.next):
            assert self.index.get(made(number)) == self.held.get(made(number))

    def reopen(self) -> None:
        self.index.close(True)
        self.index = opened(self.path, clean=True)


@pytest.mark.usefixtures("reckless")
@pytest.mark.parametrize("seed", range(3))
def test_it_holds_all_that_a_full_disk_had_no_room_for(
    small_disk: SmallDisk, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    model = Model(small_disk.path, seed)
    model.change(5000)
    for leave in (0, 50_000, 200_000):
        small_disk.fill(leave=leave)
        model.change(10_000)
        model.check()
        small_disk.clear()
        # Tried again with later changes.
        model.change(3000)
        model.check()
        model.reopen()
        model.check()
        assert dict(model.index.fold()) == model.held
    assert caplog.text.count("no space was left on the disk; what changes stays in memory") > 1
    assert model.index.figures()["bloom"]["rotations"] > 0
    model.index.close(False)


COUNT = 4000


def test_consumers_go_on_while_the_index_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last of the disk is for acks. Body files go meanwhile: that is what brings room."""
    settings = settings_of("leveldb", embed_below=64, file_size=256 << 10)
    rig = Rig(tmp_path / "data", queues=3, settings=settings)
    for number in range(COUNT):
        rig.publish(body(number, 200), [0, 1, 2] if number < 10 else [0, 1])
    rig.settle()
    files = rig.bodies.figures()["files"]
    real = leveldb_index.room
    monkeypatch.setattr(leveldb_index, "room", lambda path: 0)
    for queue in (0, 1):
        rig.queues[queue].purge()
    rig.settle()
    assert rig.failures == []
    assert "what changes stays in memory" in caplog.text
    assert rig.bodies.figures()["files"] < files
    for number in range(5):
        taken = rig.get(2)
        assert taken.body == body(number, 200)
        rig.queues[2].settle_place(taken.place)
    monkeypatch.setattr(leveldb_index, "room", real)
    rig.restart()
    assert rig.was_clean
    assert [rig.get(2).body for _ in range(5)] == [body(number, 200) for number in range(5, 10)]
    assert [queue.messages_ready for queue in rig.queues] == [0, 0, 0]
    assert rig.bodies.figures()["dangling"] == 0
    rig.stop()


def test_a_stop_without_room_for_the_index_has_the_next_start_build_it_anew(
    small_disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(small_disk.path / "data", queues=2, settings=settings_of("leveldb", embed_below=64))
    for number in range(2000):
        rig.publish(body(number, 200), [0, 1])
    rig.settle()
    small_disk.fill(leave=300 << 10)
    rig.queues[0].purge()
    rig.stop()
    assert "the index of shared bodies cannot be saved: no space left on the disk" in caplog.text
    assert rig.failures == []
    # On a disk that is still full: what is built anew is in memory then.
    rig.start()
    assert not rig.was_clean
    assert [queue.messages_ready for queue in rig.queues] == [0, 2000]
    assert [rig.get(1).body for _ in range(5)] == [body(number, 200) for number in range(5)]
    small_disk.clear()
    rig.restart()
    assert rig.was_clean
    assert rig.get(1).body == body(0, 200)
    rig.stop()


def failing_rig(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Shared bodies whose index fails when it is written to next; then they are purged."""
    rig = Rig(directory, queues=2, settings=settings_of("leveldb", embed_below=64))
    for number in range(COUNT):
        rig.publish(body(number, 200), [0, 1])
    rig.settle()

    def failing(index: LevelIndex, rows: object) -> bool:
        raise plyvel.IOError(b"IO error: 000003.log: Input/output error")

    monkeypatch.setattr(LevelIndex, "_written", failing)
    rig.queues[0].purge()
    return rig


def test_an_index_that_fails_otherwise_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = failing_rig(tmp_path / "data", monkeypatch)
    failures: list[tuple[str, bool]] = []
    rig.persister.failed = lambda text, doubtful: failures.append((text, doubtful))
    rig.settle()
    # Nothing that was synced is in doubt.
    text = "the location index failed: b'IO error: 000003.log: Input/output error'"
    assert failures[0] == (text, False)
    rig.stop(clean=False)


def test_a_stop_waits_no_longer_than_the_round_in_flight_when_the_index_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = failing_rig(tmp_path / "data", monkeypatch)
    failures: list[str] = []
    rig.persister.failed = lambda text, doubtful: failures.append(text)
    threads = rig.persister.threads
    while not failures:
        rig.turn.run()
        rig.persister.tick()
        answered = ready([thread.event_fd for thread in threads], 5.0)
        for thread, on_ready in threads.items():
            if thread.event_fd not in answered:
                continue
            if thread is rig.persister.indexing:
                # A round is in flight, whichever ended before.
                rig.publish(body(COUNT, 10), [0])
                rig.turn.run()
                rig.persister.tick()
            on_ready()
            if failures:
                break
    assert rig.persister.waits_for_disk
    rig.stop(clean=False)


def test_room_that_somebody_else_takes_holds_up_no_stop(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was room to open the database again when we looked, and none when we did."""
    model = Model(small_disk.path, 0)
    model.change(5000)
    small_disk.fill()
    monkeypatch.setattr(leveldb_index, "PAUSE_S", 0.0)
    monkeypatch.setattr(leveldb_index, "room", lambda path: 1 << 40)
    model.index.hurry()
    with pytest.raises(IndexHasNoRoom):
        model.change(20_000)
    with pytest.raises(IndexHasNoRoom):
        model.check()
    with pytest.raises(IndexHasNoRoom):
        model.index.close(True)
