"""Segments of a stream go to the object store and come back from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.kernel import clock
from broker.queues.stream_arguments import Start
from broker.vhosts.policies import Policy
from tests.tiers.rig import NAME, SEGMENT, TIERED, Tiered

COUNT = 40


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Tiered]:
    made = Tiered(tmp_path / "data", tmp_path / "store").start()
    made.declare()
    yield made
    made.kill()


def test_all_but_the_last_segment_leave_the_disk_and_every_offset_is_read(rig: Tiered) -> None:
    rig.publish(COUNT)
    rig.connect()
    segments = len(rig.stream.store.summaries)
    rig.until(lambda: rig.cold() == segments - 1)
    local = [path.name for path in Path(rig.stream.store.directory).glob("msgs.*")]
    assert len(local) == 1
    assert len(rig.objects()) == segments - 1
    assert rig.offsets() == list(range(COUNT))
    for first in (0, 1, COUNT // 2, COUNT - 1):
        assert rig.offsets(Start("offset", first), 2) == list(range(COUNT))[first : first + 2]


def set_policy(rig: Tiered, definition: dict[str, Any]) -> None:
    rig.policies.put(Policy("/", "p", ".*", definition))
    for _ in rig.vhost.apply_policies():
        pass
    rig.sync()


def settled(rig: Tiered) -> None:
    rig.connect()
    rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)


def test_a_start_finds_what_only_the_store_holds(rig: Tiered) -> None:
    rig.publish(COUNT)
    settled(rig)
    other = rig.again()
    try:
        assert other.problems == []
        other.connect()
        assert other.offsets() == list(range(COUNT))
        other.publish(3)
        assert other.offsets() == list(range(COUNT + 3))
    finally:
        other.kill()


def test_a_stream_whose_last_file_is_lost_never_begins_at_0_again(rig: Tiered) -> None:
    rig.publish(COUNT)
    settled(rig)
    end = rig.stream.store.summaries[-1].first_offset
    rig.kill()
    for path in Path(rig.stream.store.directory).glob("m*.*"):
        path.unlink()
    other = Tiered(rig.directory, rig.store.parent).start()
    try:
        assert other.stream.store.next_offset == end
        other.connect()
        other.publish(1)
        assert other.offsets() == list(range(end + 1))
    finally:
        other.kill()


def test_retention_counts_both_tiers_and_objects_go_after_the_time_of_grace(
    rig: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.publish(COUNT)
    settled(rig)
    before = rig.objects()
    stray = rig.store / "another" / "object"
    stray.parent.mkdir()
    stray.write_bytes(b"not ours")
    rig.stream.reconfigure({**TIERED, "x-max-length": 10})
    rig.second()
    assert rig.stream.messages < 13
    first = rig.stream.store.first_offset
    assert rig.offsets() == list(range(first, COUNT))
    assert rig.objects() == before | {"another/object"}
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 99_000)
    rig.second()
    assert rig.objects() == before | {"another/object"}
    monkeypatch.setattr(clock, "now", lambda: now + 101_000)
    rig.until(lambda: len(rig.objects()) == rig.cold() + 1)
    assert rig.offsets() == list(range(first, COUNT))
    assert stray.exists()


def test_a_deleted_stream_leaves_no_object_behind(
    rig: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.publish(COUNT)
    settled(rig)
    directory = Path(rig.stream.store.directory)
    queue = rig.stream
    rig.vhost.delete_queue(NAME)
    rig.tiers.queue_deleted(queue, clock.now())
    rig.until(lambda: not directory.exists())
    assert rig.objects()
    other = rig.again()
    try:
        now = clock.now()
        monkeypatch.setattr(clock, "now", lambda: now + 101_000)
        other.connect()
        other.until(lambda: not other.objects())
        other.rest()
        assert other.tiers.figures()["objects"] == 0
    finally:
        other.kill()


def test_as_much_stays_on_this_disk_as_the_stream_says(tmp_path: Path) -> None:
    rig = Tiered(tmp_path / "data", tmp_path / "store").start()
    try:
        rig.declare(stream_local_max_bytes=3 * SEGMENT)
        rig.publish(COUNT)
        rig.connect()
        rig.until(lambda: len(rig.objects()) == len(rig.stream.store.summaries) - 1)
        assert 2 * SEGMENT < rig.stream.disk_bytes <= 3 * SEGMENT
        assert rig.offsets() == list(range(COUNT))
    finally:
        rig.kill()


def test_what_is_old_leaves_this_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Tiered(tmp_path / "data", tmp_path / "store").start()
    try:
        plain = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT}
        rig.vhost.declare_queue(NAME, durable=True, arguments=plain)
        set_policy(rig, {"stream-tier": True, "stream-local-max-age": "1D"})
        rig.publish(COUNT)
        rig.connect()
        rig.until(lambda: len(rig.objects()) == len(rig.stream.store.summaries) - 1)
        rig.second()
        assert rig.cold() == 0
        now = clock.now()
        monkeypatch.setattr(clock, "now", lambda: now + 2 * 86_400_000)
        rig.until(lambda: rig.cold() == len(rig.stream.store.summaries) - 1)
        assert rig.offsets() == list(range(COUNT))
    finally:
        rig.kill()


def test_a_policy_turns_tiers_on_and_off(tmp_path: Path) -> None:
    """Off, what is in the store stays there and can be read; nothing more goes there."""
    rig = Tiered(tmp_path / "data", tmp_path / "store").start()
    try:
        plain = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": SEGMENT}
        rig.vhost.declare_queue(NAME, durable=True, arguments=plain)
        rig.publish(COUNT)
        rig.connect()
        rig.second()
        assert not rig.objects()
        set_policy(rig, {"stream-tier": True, "stream-local-max-bytes": 0})
        settled(rig)
        before, cold = rig.objects(), rig.cold()
        set_policy(rig, {"stream-tier": False})
        rig.publish(COUNT)
        for _ in range(3):
            rig.second()
        assert (rig.objects(), rig.cold()) == (before, cold)
        assert rig.stream.tier_figures()["on"] is False
        assert rig.offsets() == list(range(2 * COUNT))
    finally:
        rig.kill()
