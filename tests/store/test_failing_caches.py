"""Files that only spare a start some reading: a disk that cannot read them, or has no room for
them, keeps no broker from starting or from stopping cleanly."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.store.files import disk
from tests.store import recorder
from tests.store.bodies_rig import PROPERTIES, Rig, backends, body, settings_of
from tests.store.test_failing_schedule import COUNT as DELAYED
from tests.store.test_failing_schedule import Delayed, stopped
from tests.store.test_failing_streams import stream_of

COUNT = 60


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    recorder.fail("read", 0, 0)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """From the call on, reading a file whose name holds the word fails; gives the paths that were
    asked for."""

    def fail(word: str) -> list[str]:
        asked: list[str] = []

        def failing(name: str) -> None:
            whole = getattr(disk, name)

            def read(path: str, *arguments: Any) -> bytes:
                if word in Path(path).name:
                    asked.append(path)
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                found: bytes = whole(path, *arguments)
                return found

            monkeypatch.setattr(disk, name, read)

        failing("read")
        failing("read_part")
        return asked

    return fail


def filled(path: Path, backend: str) -> Rig:
    """Two queues with the same large bodies, in several body files."""
    rig = Rig(path / "data", queues=2, settings=settings_of(backend, file_size=64 << 10))
    for number in range(COUNT):
        rig.publish(body(number), [0, 1])
    rig.settle()
    rig.settle()
    return rig


def holds_all(rig: Rig) -> None:
    for queue in (0, 1):
        got = [rig.get(queue).body for _ in range(COUNT)]
        assert got == [body(number) for number in range(COUNT)]
    assert rig.bodies.figures()["dangling"] == 0


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        ("ram", "index.ram"),
        ("ram", "clean"),
        ("leveldb", "bloom"),
        ("leveldb", "index.sums"),
        ("leveldb", ".ldb"),
        ("leveldb", "MANIFEST"),
        ("leveldb", "clean"),
    ],
)
def test_an_index_that_cannot_be_read_is_built_anew(
    tmp_path: Path, unreadable: Callable[[str], list[str]], backend: str, name: str
) -> None:
    rig = filled(tmp_path, backend)
    if name == ".ldb":
        # A database that was opened once more has its log in a table.
        rig.restart()
    rig.stop()
    asked = unreadable(name)
    rig.start()
    assert asked
    assert not rig.was_clean
    assert any(asked[0].rpartition("/")[2] in problem for problem in rig.problems)
    holds_all(rig)
    rig.stop()


@pytest.mark.parametrize("which", [3, 4, 5])
def test_a_part_of_an_index_that_cannot_be_read_has_it_built_anew(
    tmp_path: Path, which: int
) -> None:
    """The marker is read first, then the head of the index, then its parts one by one."""
    rig = filled(tmp_path, "ram")
    rig.stop()
    recorder.fail("read", which, errno.EIO)
    rig.start()
    assert not rig.was_clean
    holds_all(rig)
    rig.stop()


@backends
def test_bodies_are_found_without_a_table_of_contents(
    tmp_path: Path, unreadable: Callable[[str], list[str]], backend: str
) -> None:
    rig = filled(tmp_path, backend)
    rig.bodies.doubt()
    rig.stop()
    asked = unreadable(".toc")
    rig.start()
    assert len(asked) > 1
    holds_all(rig)
    rig.stop()


def test_a_table_of_contents_that_cannot_be_written_keeps_no_broker_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(tmp_path, "ram")
    rig.bodies.doubt()
    rig.stop()
    for toc in (tmp_path / "data/bodies").glob("*.toc"):
        toc.unlink()
    with monkeypatch.context() as full:
        full.setattr(disk, "write_atomic", no_room(disk.write_atomic, ".toc"))
        rig.start()
    assert any(".toc cannot be written: No space left" in problem for problem in rig.problems)
    holds_all(rig)
    rig.stop()


def no_room(whole: Callable[..., None], *words: str) -> Callable[..., None]:
    def write(path: str, *arguments: Any) -> None:
        if any(word in Path(path).name for word in words):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        whole(path, *arguments)

    return write


@pytest.mark.parametrize(
    ("backend", "word"),
    [
        ("ram", ".toc"),
        ("ram", "index.ram"),
        ("ram", "clean"),
        ("leveldb", ".toc"),
        ("leveldb", "bloom"),
        ("leveldb", "index.sums"),
        ("leveldb", "clean"),
    ],
)
def test_a_clean_stop_without_room_for_the_index_ends_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    backend: str,
    word: str,
) -> None:
    rig = filled(tmp_path, backend)
    with monkeypatch.context() as full:
        full.setattr(disk, "write_atomic", no_room(disk.write_atomic, word))
        full.setattr(disk, "append", no_room(disk.append, word))
        with caplog.at_level(logging.ERROR, "leveret.store"):
            rig.stop()
    (record,) = caplog.records
    assert "cannot be saved" in record.message
    assert "No space left on device" in record.message
    assert not (tmp_path / "data/bodies/clean").exists()
    rig.start()
    assert not rig.was_clean
    holds_all(rig)
    rig.stop()


def test_half_an_index_takes_no_room_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = filled(tmp_path, "ram")
    real = disk.append

    def half(path: str, data: bytes) -> None:
        real(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with monkeypatch.context() as full:
        full.setattr(disk, "append", half)
        rig.stop()
    assert not (tmp_path / "data/bodies/index.ram").exists()
    rig.start()
    holds_all(rig)
    rig.stop()


def test_a_queue_is_found_without_the_summaries_of_its_segments(
    tmp_path: Path, unreadable: Callable[[str], list[str]]
) -> None:
    rig = Rig(tmp_path / "data", queues=1, segment_size=4096)
    for number in range(20):
        rig.publish(body(number, 1000), [0])
    for _ in range(4):
        rig.settle()
    rig.stop()
    asked = unreadable("meta.")
    rig.start()
    assert len(asked) > 1
    assert rig.problems == []
    assert [rig.get(0).body for _ in range(20)] == [body(number, 1000) for number in range(20)]
    rig.stop()


def test_a_stream_is_found_without_the_summaries_of_its_segments(
    tmp_path: Path, unreadable: Callable[[str], list[str]]
) -> None:
    rig = Rig(tmp_path / "data", queues=0)
    stream = stream_of(rig)
    for number in range(1000):
        stream.put(b"", b"k", PROPERTIES, body(number, 1000), True)
    for _ in range(4):
        rig.settle()
    rig.stop()
    asked = unreadable("meta.")
    rig.start()
    stream = stream_of(rig)
    assert stream.recover() == []
    assert len(asked) > 1
    assert (stream.messages_ready, stream.store.next_offset) == (1000, 1000)
    rig.stop()


def test_delayed_messages_are_found_without_their_due_times(
    tmp_path: Path, unreadable: Callable[[str], list[str]]
) -> None:
    rig = stopped(tmp_path).rig
    asked = unreadable("due.")
    rig.start()
    delayed = Delayed(rig)
    problems = delayed.holding.recover()
    assert len(asked) == len(problems) > 1
    assert all("cannot be read: Input/output error" in problem for problem in problems)
    delayed.holding.start()
    delayed.until(lambda: rig.queues[0].messages_ready == DELAYED)
    assert delayed.holding.messages == 0
    delayed.holding.close()
    rig.stop()
