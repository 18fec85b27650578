"""Shared bodies: what is written, what is counted, what comes back after a stop or a crash.

B1 to B5 are the invariants of the body store: references are what the queues hold (B1), every
reference of a kept message leads to its body (B2), a body has one authoritative record (B3), a
cancelled write leaves no byte (B4), the disk holds little more than twice what lives (B5). B3 and
B5 are with the collector (`test_body_collector.py`), crashes in `test_body_recovery.py`.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.store.bodies.figures import body_figures
from tests.store import recorder
from tests.store.bodies_rig import Rig, Taken, backends, body, settings_of


def bytes_on_disk(rig: Rig) -> int:
    return sum(each.stat().st_size for each in rig.path.rglob("*.bdy"))


# -- writing ---------------------------------------------------------------------------------------


@backends
def test_it_writes_a_body_once_for_all_its_queues(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", queues=5, settings=settings_of(backend))
    for number in range(20):
        rig.publish(body(number), [0, 1, 2, 3, 4])
    rig.settle()
    figures = rig.bodies.figures()
    assert (figures["written"], figures["shared"]) == (20, 20)
    on_disk = sum(each.stat().st_size for each in rig.path.rglob("*") if each.is_file())
    assert on_disk < 20 * 5000 * 1.3
    for queue in range(5):
        assert [rig.get(queue).body for _ in range(20)] == [body(number) for number in range(20)]
    rig.stop()


@pytest.mark.parametrize(
    ("size", "targets"), [(4095, [0, 1]), (5000, [0])], ids=["small", "one queue"]
)
def test_it_embeds_what_is_small_or_goes_to_one_queue(
    tmp_path: Path, size: int, targets: list[int]
) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1, size), targets)
    rig.settle()
    assert rig.bodies.figures()["shared"] == 0
    assert rig.get(0).body == body(1, size)
    rig.stop()


def test_it_gives_a_large_body_a_file_of_its_own(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of("ram", own_file=100_000))
    rig.publish(body(1), [0, 1])
    rig.publish(body(2, 100_000), [0, 1])
    rig.publish(body(3), [0, 1])
    rig.settle()
    sizes = sorted(each.stat().st_size for each in rig.path.rglob("*.bdy"))
    assert sizes == [16 + 2 * (5000 + 24), 16 + 100_000 + 24]
    taken = [rig.get(0) for _ in range(3)]
    assert [each.body for each in taken] == [body(1), body(2, 100_000), body(3)]
    rig.queues[0].settle_place(taken[1].place)
    rig.queues[1].purge()
    rig.settle()
    assert bytes_on_disk(rig) == 16 + 2 * (5000 + 24)
    rig.stop()


def test_it_begins_another_file_when_one_is_full(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of("ram", file_size=64 << 10))
    for number in range(40):
        rig.publish(body(number), [0, 1])
    rig.settle()
    files = list(rig.path.rglob("*.bdy"))
    assert len(files) == 4
    assert all(each.stat().st_size <= 64 << 10 for each in files)
    # All but the last one have their tables of contents.
    assert len(list(rig.path.rglob("*.toc"))) == 3
    rig.crash()
    assert [rig.get(1).body for _ in range(40)] == [body(number) for number in range(40)]
    rig.stop()


@backends
def test_b4_a_cancelled_write_leaves_no_byte(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    for number in range(10):
        rig.publish(body(number), [0, 1])
        for queue in (0, 1):
            taken = rig.get_at_once(queue)
            assert taken.body == body(number)
            rig.queues[queue].settle_place(taken.place)
    rig.settle()
    figures = rig.bodies.figures()
    assert (figures["written"], figures["cancelled_writes"]) == (0, 10)
    assert figures["cancelled_bytes"] == 50_000
    assert (figures["in_flight"], figures["in_flight_bytes"], figures["files"]) == (0, 0, 0)
    assert bytes_on_disk(rig) == 0
    rig.stop()


def test_b4_a_body_between_others_is_left_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    for number in range(3):
        rig.publish(body(number), [0, 1])
    taken = [[rig.get_at_once(queue) for _ in range(3)] for queue in (0, 1)]
    for queue in (0, 1):
        rig.queues[queue].settle_place(taken[queue][1].place)
        rig.queues[queue].requeue_place(taken[queue][0].place)
        rig.queues[queue].requeue_place(taken[queue][2].place)
    rig.settle()
    assert bytes_on_disk(rig) == 16 + 2 * (5000 + 24)
    rig.crash()
    for queue in (0, 1):
        assert [rig.get(queue).body for _ in range(2)] == [body(0), body(2)]
    rig.stop()


def test_it_forgets_a_body_that_no_queue_took(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    reference = rig.bodies.share_bytes(body(1))
    rig.bodies.release_bytes(reference)
    rig.settle()
    assert rig.bodies.figures()["in_flight"] == 0
    assert bytes_on_disk(rig) == 0
    rig.stop()


# -- references ------------------------------------------------------------------------------------


@backends
def test_b1_references_are_the_unacked_messages_of_all_queues(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", queues=4, settings=settings_of(backend))
    for number in range(12):
        rig.publish(body(number), list(range(2 + number % 3)))
    rig.settle()
    assert sorted(rig.image().values()) == sorted(2 + number % 3 for number in range(12))
    taken = [rig.get(0) for _ in range(12)]
    for each in taken[:5]:
        rig.queues[0].settle_place(each.place)
    for each in taken[5:8]:
        rig.queues[0].requeue_place(each.place)
    rig.settle()
    expected = sorted(2 + number % 3 - (number < 5) for number in range(12))
    assert sorted(rig.image().values()) == expected
    rig.crash()
    assert not rig.was_clean
    assert sorted(rig.image().values()) == expected
    rig.restart()
    assert rig.was_clean
    assert sorted(rig.image().values()) == expected
    for queue in rig.queues[1:]:
        queue.purge()
    rig.settle()
    assert sorted(rig.image().values()) == [1] * 7
    rig.queues[0].delete()
    rig.settle()
    assert rig.image() == {}
    rig.stop()


@backends
@pytest.mark.parametrize("way", ["purge", "delete"])
@pytest.mark.parametrize("written", [True, False], ids=["written", "unwritten"])
def test_b1_a_purge_and_a_deletion_give_unread_references_back(
    tmp_path: Path, backend: str, way: str, written: bool
) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend), segment_size=4096)
    for number in range(100):
        rig.publish(body(number), [0, 1])
        rig.queues[0].put(b"x", b"k", b"\x00\x00", b"plain", True)
    if written:
        rig.settle()
    unacked = [rig.get(0) for _ in range(7)]
    getattr(rig.queues[0], way)()
    rig.settle()
    # Of the seven that were taken, every second one is plain.
    kept = 4 if way == "purge" else 0
    assert sorted(rig.image().values()) == [1] * (100 - kept) + [2] * kept
    if way == "purge":
        for each in unacked:
            rig.queues[0].settle_place(each.place)
    rig.queues[1].purge()
    rig.settle()
    assert rig.image() == {}
    assert rig.bodies.figures()["live_bytes"] == 0
    rig.stop()


@backends
def test_b1_references_of_transient_queues_end_with_a_clean_stop(
    tmp_path: Path, backend: str
) -> None:
    rig = Rig(tmp_path / "data", queues=1, transient=2, settings=settings_of(backend))
    rig.publish(body(1), [0, 1, 2])
    rig.publish(body(2), [1, 2])
    rig.settle()
    assert sorted(rig.image().values()) == [2, 3]
    rig.restart()
    assert rig.was_clean
    assert list(rig.image().values()) == [1]
    assert rig.get(0).body == body(1)
    rig.stop()


def test_b1_a_requeued_message_keeps_its_one_reference(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    for _ in range(5):
        taken = rig.get(0)
        assert taken.body == body(1)
        rig.queues[0].requeue_place(taken.place)
    assert list(rig.image().values()) == [2]
    rig.queues[0].settle_place(rig.get(0).place)
    rig.settle()
    assert list(rig.image().values()) == [1]
    rig.stop()


@backends
def test_b1_a_dead_letter_shares_the_body(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", queues=4, settings=settings_of(backend))
    rig.dead_letter(0, [2, 3])
    rig.publish(body(1), [0, 1])
    rig.settle()
    written = bytes_on_disk(rig)
    rig.queues[0].settle_place(rig.get(0).place, False)
    rig.settle()
    assert list(rig.image().values()) == [3]
    rig.crash()
    assert list(rig.image().values()) == [3]
    assert bytes_on_disk(rig) == written
    assert [rig.get(queue).body for queue in (1, 2, 3)] == [body(1)] * 3
    rig.stop()


def test_it_shares_the_body_of_a_dead_letter_that_several_queues_get(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", queues=4)
    rig.dead_letter(0, [1, 2, 3])
    rig.publish(body(1), [0])
    rig.settle()
    assert bytes_on_disk(rig) == 0
    rig.queues[0].settle_place(rig.get(0).place, False)
    rig.settle()
    assert list(rig.image().values()) == [3]
    assert [rig.get(queue).body for queue in (1, 2, 3)] == [body(1)] * 3
    rig.stop()


@backends
def test_b1_levels_of_a_priority_queue_count_too(tmp_path: Path, backend: str) -> None:
    rig = Rig(
        tmp_path / "data", settings=settings_of(backend), arguments={0: {"x-max-priority": 5}}
    )
    for number in range(10):
        rig.publish(body(number), [0, 1], priority=number % 3)
    rig.settle()
    order = sorted(range(10), key=lambda number: -(number % 3))
    first = rig.get(0)
    assert first.body == body(order[0])
    rig.crash()
    assert sorted(rig.image().values()) == [2] * 10
    taken = [rig.get(0) for _ in range(10)]
    assert [each.body for each in taken] == [body(number) for number in order]
    for each in taken[:4]:
        rig.queues[0].settle_place(each.place)
    rig.settle()
    assert sorted(rig.image().values()) == [1] * 4 + [2] * 6
    for each in taken[4:]:
        rig.queues[0].requeue_place(each.place)
    rig.queues[0].purge()
    rig.settle()
    assert sorted(rig.image().values()) == [1] * 10
    rig.stop()


# -- reading ---------------------------------------------------------------------------------------


def test_it_serves_bodies_from_memory_until_they_are_written(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    taken = rig.get_at_once(0)
    assert taken.body == body(1)
    rig.settle()
    assert rig.get(1).body == body(1)
    rig.stop()


@backends
def test_several_queues_read_at_once(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", queues=6, settings=settings_of(backend))
    for number in range(20):
        rig.publish(body(number, 4096 + 997 * number), list(range(6)))
    rig.settle()
    rig.crash()
    for number in range(20):
        waiting = [Taken() for _ in range(6)]
        for queue, taken in enumerate(waiting):
            rig.queues[queue].get(taken)
        while not all(taken.answered for taken in waiting):
            rig.settle(tick=False)
        assert {taken.body for taken in waiting} == {body(number, 4096 + 997 * number)}
    rig.stop()


# -- figures ---------------------------------------------------------------------------------------


@backends
def test_its_figures_tell_where_bodies_were_read_and_who_refers_to_them(
    tmp_path: Path, backend: str
) -> None:
    rig = Rig(tmp_path / "data", queues=2, settings=settings_of(backend))
    assert rig.bodies.unused
    rig.publish(body(1), [0, 1])
    rig.publish(body(2), [0, 1])
    figures = rig.bodies.figures()
    assert (figures["references"], figures["in_flight"]) == (4, 2)
    assert figures["in_flight_bytes"] == 2 * (24 + 5000)
    first = rig.get_at_once(0)
    figures = rig.bodies.figures()
    assert (figures["in_flight_hits"], figures["in_flight_misses"]) == (1, 0)
    rig.queues[0].settle_place(first.place)
    rig.settle()
    figures = rig.bodies.figures()
    assert (figures["references"], figures["in_flight"], figures["written"]) == (3, 0, 2)
    assert figures["buffer_writes"] == 1
    assert figures["bytes"] == bytes_on_disk(rig) == 16 + 2 * (24 + 5000)
    assert figures["live_bytes"] == 2 * (24 + 5000)
    assert rig.get(1).body == body(1)
    figures = rig.bodies.figures()
    assert figures["in_flight_misses"] == 1
    assert figures["cache_hits"] + figures["cache_misses"] == 1
    rig.crash()
    figures = rig.bodies.figures()
    assert not rig.bodies.unused
    assert (figures["references"], figures["live_bytes"]) == (3, 2 * (24 + 5000))
    assert figures["index"]["backend"] == backend
    assert figures["index"]["entries"] == 2
    assert (figures["index"]["bloom"] is None) == (backend == "ram")
    rig.stop()


def test_figures_of_several_stores_are_added_up(tmp_path: Path) -> None:
    rigs = [
        Rig(tmp_path / str(number), queues=2, settings=settings_of("leveldb"))
        for number in range(3)
    ]
    for rig in rigs[:2]:
        rig.publish(body(1), [0, 1])
        rig.settle()
    figures = body_figures((rig.bodies for rig in rigs), "leveldb")
    assert (figures["stores"], figures["files"], figures["references"]) == (2, 2, 4)
    assert figures["index"]["entries"] == 2
    assert figures["index"]["bloom"]["state"] == "clean"
    assert figures["index"]["bloom"]["adds"] == 2
    for rig in rigs:
        rig.stop()


@backends
def test_a_disk_that_fails_to_read_a_body_drops_no_message(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    rig.publish(body(1), [1, 2])
    rig.publish(body(2), [1])
    rig.settle()
    rig.restart()
    recorder.fail("read", 2, errno.EIO)  # the first one is of the queue's segment
    taken = Taken()
    rig.queues[1].get(taken)
    rig.settle()
    assert not taken.answered, "and what comes behind it does not go before it"
    assert rig.queues[1].messages_ready == 2
    rig.queues[1].wake()
    rig.settle()
    assert taken.body == body(1)
    assert rig.get(1).body == body(2)
    rig.stop()
