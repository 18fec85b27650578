"""An object store that is away, full, slow, wrong, or another appliance's: nothing is lost, and
who waits is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.queues.stream_arguments import Start
from broker.schema.tier_work import Answer, Task
from tests.tiers.rig import TIERED, Tiered

COUNT = 20


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Tiered]:
    made = Tiered(tmp_path / "data", tmp_path / "store").start()
    made.declare()
    yield made
    made.kill()


def all_cold(rig: Tiered) -> None:
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)


def offsets_of(told: list[list[Any]]) -> list[int]:
    return [row[0] for row in told[0]]


def full(task: Task) -> Answer | None:
    """A store that takes nothing more."""
    return Answer(task.id, "store", "it is full") if task.kind == "put" else None


def test_uploads_wait_for_a_store_that_fails_and_are_told_as_a_problem(rig: Tiered) -> None:
    rig.publish(COUNT)
    rig.answer = full
    rig.connect()
    for _ in range(20):
        rig.second()
    tries = rig.done.count(("put", "store"))
    assert 2 <= tries < 20, "it is tried again, in longer and longer pauses"
    assert rig.cold() == 0
    assert rig.offsets() == list(range(COUNT))
    ((severity, name, text),) = rig.tiers.problems()
    assert (severity, name) == ("warn", "object store")
    assert "it is full" in text
    rig.answer = lambda _: None
    all_cold(rig)
    assert rig.tiers.problems() == []
    assert rig.offsets() == list(range(COUNT))
    assert len(rig.objects()) == rig.cold(), "each was tried again under its name"


def test_an_upload_whose_answer_was_lost_is_not_made_twice(rig: Tiered) -> None:
    rig.publish(COUNT)

    def lost(task: Task) -> Answer | None:
        if task.kind == "put" and not rig.done.count(("put", "away")):
            assert rig.work.carry_out(task).fault == ""
            return Answer(task.id, "away", "the process was killed")
        return None

    rig.answer = lost
    rig.connect()
    all_cold(rig)
    assert len(rig.objects()) == rig.cold()
    assert rig.offsets() == list(range(COUNT))


def test_what_does_not_read_as_it_was_put_stays_on_this_disk(
    rig: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that keeps garbage under the name."""
    rig.publish(COUNT)

    def garbage(task: Task) -> Answer | None:
        if task.kind == "put":
            path = rig.store / task.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(task.length))
        return None

    rig.answer = garbage
    rig.connect()
    for _ in range(5):
        rig.second()
    assert ("put", "wrong") in rig.done
    assert rig.cold() == 0
    rig.answer = lambda _: None
    all_cold(rig)
    assert rig.offsets() == list(range(COUNT))


def test_a_reader_waits_for_a_store_that_is_away_and_passes_nothing_over(rig: Tiered) -> None:
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    told: list[list[Any]] = []
    rig.tiers.disconnected()
    rig.stream.browse(Start("first"), COUNT, 1 << 30, told.append)
    for _ in range(5):
        rig.second()
        rig.ring()
    assert told == []
    rig.tasks.clear()
    rig.connect()
    rig.until(lambda: bool(told))
    assert offsets_of(told) == list(range(COUNT))


@pytest.mark.parametrize("change", ["older", "shorter", "gone"])
def test_an_object_that_is_not_what_it_was_is_told_and_never_delivered(
    rig: Tiered, change: str
) -> None:
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    summary = rig.stream.store.summaries[1]
    path = rig.store / summary.tiered.name
    content = path.read_bytes()
    if change == "older":
        other = rig.stream.store.summaries[0].tiered.name
        path.write_bytes((rig.store / other).read_bytes())
    elif change == "shorter":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    told: list[list[Any]] = []
    rig.stream.browse(Start("first"), COUNT, 1 << 30, told.append)
    for _ in range(5):
        rig.second()
        rig.ring()
    assert told == []
    assert rig.done[-1] == ("get", "missing" if change == "gone" else "wrong")
    # Others read what they want meanwhile.
    assert rig.offsets(Start("offset", COUNT - 4)) == list(range(COUNT - 4, COUNT))
    path.write_bytes(content)
    rig.until(lambda: bool(told))
    assert offsets_of(told) == list(range(COUNT))


def test_a_damaged_copy_in_the_cache_is_fetched_again(rig: Tiered) -> None:
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    assert rig.offsets() == list(range(COUNT))
    for path in (rig.directory / "run" / "cold").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    assert rig.offsets() == list(range(COUNT))


def test_a_damaged_segment_is_not_uploaded(rig: Tiered) -> None:
    rig.publish(COUNT)
    path = sorted(Path(rig.stream.store.directory).glob("msgs.*"))[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    rig.connect()
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 2)
    assert path.exists()
    assert any("damaged" in text for _, _, text in rig.tiers.problems())


def test_another_appliances_store_is_read_only_until_it_is_adopted(
    rig: Tiered, tmp_path: Path
) -> None:
    """The copy of a backup beside its living original."""
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    rig.sync()
    (tmp_path / "copy").mkdir()
    data, _ = rig.copied(tmp_path / "copy")
    (data / "appliance_id").unlink()  # as a backup does
    before = rig.objects()
    copy = Tiered(data, rig.store.parent, tier_grace=0.0).start()
    try:
        copy.connect()
        copy.publish(COUNT)
        copy.stream.reconfigure({**TIERED, "x-max-length": 10})
        for _ in range(15):
            copy.second()
        assert rig.objects() == before
        assert copy.tiers.state()[0] == "foreign"
        assert copy.offsets(Start("first"))[-1] == 2 * COUNT - 1
        assert rig.offsets() == list(range(COUNT))
        copy.tiers.adopt(lambda _: None)
        all_cold(copy)
        assert rig.objects() != before
    finally:
        copy.kill()
    rig.work._owner = "", 0.0  # seconds later
    rig.publish(COUNT)
    rig.second()
    assert rig.tiers.state()[0] == "foreign", "the original notices that it is not the owner"


def test_a_directory_that_is_not_mounted_gets_nothing(rig: Tiered) -> None:
    rig.publish(COUNT)
    rig.connect()
    all_cold(rig)
    away = rig.store.with_name("away")
    rig.store.rename(away)
    other = rig.again()
    try:
        other.connect()
        other.publish(COUNT)
        for _ in range(15):
            other.second()
        assert not any(path.is_file() for path in rig.store.rglob("*"))
        assert "mounted" in other.tiers.state()[1]
        if rig.store.exists():
            rig.store.rmdir()
        away.rename(rig.store)
        all_cold(other)
        assert other.offsets() == list(range(2 * COUNT))
    finally:
        other.kill()
