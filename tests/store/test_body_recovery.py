"""A vhost's shared bodies after a crash or a clean stop (invariants B2, L3 and L4)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.store.index.body_census import CannotCount
from tests.inner import body_entries
from tests.store import recorder
from tests.store.bodies_rig import Rig, backends, body, settings_of
from tests.store.test_location_index import first_form


@backends
def test_b2_every_kept_message_has_its_body_after_a_crash(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend, file_size=64 << 10))
    for number in range(30):
        rig.publish(body(number), [0, 1, 2])
    rig.settle()
    rig.publish(body(99), [0, 1])  # no round has taken it
    rig.crash()
    for queue in range(3):
        assert [rig.get(queue).body for _ in range(30)] == [body(number) for number in range(30)]
        assert rig.queues[queue].messages_ready == 0
    rig.stop()


@backends
def test_b2_a_reference_without_a_body_is_dropped_and_counted(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    rig.publish(body(1), [0, 1])
    rig.publish(body(2, 100), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    for path in rig.path.rglob("*.bdy"):
        path.unlink()
    rig.start()
    assert rig.bodies.figures()["dangling"] == 2
    assert rig.get(0).body == body(2, 100)
    assert rig.get(1).body == body(2, 100)
    assert rig.queues[0].messages_ready == 0
    rig.stop()


@backends
def test_b2_a_damaged_body_costs_its_messages_only(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    for number in range(3):
        rig.publish(body(number), [0, 1])
    rig.settle()
    rig.stop()
    path = next(rig.path.rglob("*.bdy"))
    content = bytearray(path.read_bytes())
    content[16 + 5024 + 1000] ^= 1
    path.write_bytes(content)
    rig.start()
    for queue in (0, 1):
        assert [rig.get(queue).body for _ in range(2)] == [body(0), body(2)]
        assert rig.queues[queue].messages_ready == 0
    rig.stop()


def test_b2_a_torn_body_file_keeps_what_is_whole(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    for number in range(3):
        rig.publish(body(number), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    path = next(rig.path.rglob("*.bdy"))
    whole = path.read_bytes()
    for length in (0, 7, 16, 30, 16 + 5024, 16 + 5024 + 3, len(whole) - 1):
        path.write_bytes(whole[:length])
        for toc in rig.path.rglob("*.toc"):
            toc.unlink()
        copy = Rig(rig.copied(), settings=rig.settings)
        expected = [body(number) for number in range(max(length - 16, 0) // 5024)]
        assert copy.queues[0].messages_ready == len(expected), length
        assert [copy.get(1).body for _ in expected] == expected
        copy.stop(clean=False)


@backends
@pytest.mark.parametrize("toc", ["missing", "damaged"])
def test_it_does_without_a_table_of_contents(tmp_path: Path, backend: str, toc: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend, file_size=64 << 10))
    for number in range(30):
        rig.publish(body(number), [0, 1])
    rig.settle()
    before = rig.image()
    rig.stop(clean=False)
    for path in rig.path.rglob("*.toc"):
        if toc == "missing":
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[5] ^= 1
            path.write_bytes(content)
    rig.start()
    assert rig.image() == before
    assert [rig.get(0).body for _ in range(30)] == [body(number) for number in range(30)]
    rig.stop()


@backends
def test_l3_a_rebuilt_index_equals_the_one_before(tmp_path: Path, backend: str) -> None:
    rig = Rig(tmp_path / "data", queues=4, settings=settings_of(backend, file_size=64 << 10))
    for number in range(60):
        rig.publish(body(number), list(range(2 + number % 3)))
    rig.settle()
    for _ in range(25):
        rig.queues[0].settle_place(rig.get(0).place)
    rig.queues[3].purge()
    rig.settle()
    before = dict(body_entries(rig.bodies))
    rig.restart()
    assert rig.was_clean
    assert dict(body_entries(rig.bodies)) == before
    clean = rig.bodies.figures()
    rig.crash()
    assert not rig.was_clean
    assert dict(body_entries(rig.bodies)) == before
    again = rig.bodies.figures()
    for name in ("files", "bytes", "live_bytes", "garbage_bytes"):
        assert again[name] == clean[name]
    # Recovering twice is recovering once.
    rig.crash()
    assert dict(body_entries(rig.bodies)) == before
    rig.stop()


@backends
@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "of another time"])
def test_l4_a_torn_marker_is_no_clean_stop(tmp_path: Path, backend: str, harm: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    for number in range(5):
        rig.publish(body(number), [0, 1])
    rig.settle()
    before = rig.image()
    rig.stop()
    marker = rig.path / "bodies/clean"
    content = marker.read_bytes()
    if harm == "cut":
        content = content[:-1]
    elif harm == "flipped":
        content = content.replace(b'"files"', b'"filet"')
    elif harm == "empty":
        content = b""
    else:
        path = next(rig.path.rglob("*.bdy"))
        path.write_bytes(path.read_bytes() + b"more")
    marker.write_bytes(content)
    rig.start()
    assert not rig.was_clean
    assert rig.image() == before
    assert not marker.exists()
    rig.stop()


@pytest.mark.parametrize(("before", "after"), [("ram", "leveldb"), ("leveldb", "ram")])
def test_it_changes_its_index_at_a_restart(tmp_path: Path, before: str, after: str) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(before))
    for number in range(5):
        rig.publish(body(number), [0, 1])
    rig.settle()
    held = rig.image()
    rig.stop()
    rig.settings = settings_of(after)
    rig.start()
    assert not rig.was_clean
    assert rig.image() == held
    assert [rig.get(0).body for _ in range(5)] == [body(number) for number in range(5)]
    rig.restart()
    assert rig.was_clean
    rig.stop()


def test_it_takes_up_an_index_of_the_first_version_without_a_word(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of("ram"))
    for number in range(20):
        rig.publish(body(number), [0, 1])
    rig.settle()
    held = rig.image()
    old = first_form(body_entries(rig.bodies))
    rig.stop()
    (rig.path / "bodies/index.ram").write_bytes(old)
    rig.start()
    assert rig.was_clean
    assert rig.problems == []
    assert rig.image() == held
    assert [rig.get(0).body for _ in range(20)] == [body(number) for number in range(20)]
    rig.stop()


def test_it_reports_unknown_files_and_leaves_them_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    rig.stop()
    strange = [rig.path / "bodies" / name for name in ("notes.txt", "0000000001.bdy", "x.tmp")]
    for path in strange:
        path.write_text("mine")
    rig.start()
    assert [path.read_text() for path in strange] == ["mine"] * 3
    for path in strange:
        assert any(path.name in problem for problem in rig.problems)
    rig.stop()


def test_it_refuses_body_files_of_a_later_version(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    path = next(rig.path.rglob("*.bdy"))
    content = bytearray(path.read_bytes())
    content[4] = 9
    content[16:] = bytes(len(content) - 16)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="format version 9"):
        rig.start()


@pytest.mark.parametrize("header", [bytes(16), b"LVRB" + bytes(12), b"LVRC", b"LVRB\x09"])
def test_a_damaged_header_costs_no_body(tmp_path: Path, header: bytes) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    path = next(rig.path.rglob("*.bdy"))
    content = path.read_bytes()
    path.write_bytes(header + content[len(header) :])
    rig.start()
    assert any("its header is damaged; 1 bodies were found" in text for text in rig.problems)
    assert rig.get(0).body == body(1)
    rig.stop()


def test_it_never_gives_an_id_twice(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    ids = set()
    for _ in range(3):
        for number in range(50):
            rig.publish(body(number), [0, 1])
        rig.settle()
        ids.update(rig.image())
        rig.crash()
    assert len(ids) == 150
    assert len(rig.image()) == 150
    rig.stop()


def test_it_removes_what_a_kill_left_half_written_and_says_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data")
    rig.publish(body(1), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    table = next(rig.path.rglob("*.bdy")).with_suffix(".toc")
    left = [table.with_name(f"{table.name}.tmp"), table.with_suffix(".tmp")]
    left += [table.with_name(name) for name in ("clean.tmp", "bloom.tmp", "index.ram.tmp")]
    for path in left:
        path.write_text("half")
    rig.start()
    assert [path for path in left if path.exists()] == []
    assert rig.problems == []
    assert rig.get(0).body == body(1)
    rig.stop()


@backends
def test_a_clean_start_believes_the_summaries_of_queues_and_another_one_does_not(
    tmp_path: Path, backend: str
) -> None:
    rig = Rig(tmp_path / "data", queues=2, settings=settings_of(backend), segment_size=4096)
    for number in range(200):
        rig.publish(body(number), [0, 1])
        rig.publish(body(number, 10), [0])
        if number % 50 == 49:
            rig.settle()
    rig.settle()
    metas = list(rig.path.rglob("meta.*"))
    assert len(metas) > 4
    before = rig.image()
    rig.restart()
    assert rig.was_clean
    assert (rig.bodies.references, rig.image()) == (400, before)
    first = rig.get(0)
    assert first.body == body(0)
    rig.queues[0].settle_place(first.place)
    rig.restart()
    assert rig.was_clean
    assert rig.bodies.references == 399
    assert sum(rig.image().values()) == 399
    # A summary does not say whom its records refer to: it is of no use when nobody else knows.
    rig.crash()
    assert rig.bodies.references == 399
    assert sum(rig.image().values()) == 399
    got = [rig.get(0).body for _ in range(399)]
    assert got == [each for n in range(200) for each in (body(n), body(n, 10))][1:]
    rig.queues[1].purge()
    rig.settle()
    assert sum(rig.image().values()) == 199
    rig.stop()


@backends
def test_damaged_bodies_of_a_file_without_a_table_are_in_quarantine(
    tmp_path: Path, backend: str
) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of(backend))
    for number in range(4):
        rig.publish(body(number), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    path = next(rig.path.rglob("*.bdy"))
    content = bytearray(path.read_bytes())
    at = 16 + 5024
    content[at + 1000] ^= 1
    path.write_bytes(content)
    for toc in rig.path.rglob("*.toc"):
        toc.unlink()
    for times in range(2):
        rig.start()
        assert any("are no body; they are in" in text for text in rig.problems) == (times == 0)
        assert [rig.get(0).body for _ in range(3)] == [body(0), body(2), body(3)]
        if times == 0:
            (entry,) = rig.persister.quarantine.entries
            assert (entry["segment"], entry["position"], entry["length"]) == (1, at, 5024)
            assert Path(entry["file"]).read_bytes() == content[at : at + 5024]
        rig.stop(clean=False)


def test_a_count_that_the_disk_lost_is_not_taken_for_a_segment_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path / "data", settings=settings_of("leveldb"))
    for number in range(3):
        rig.publish(body(number), [0, 1])
    rig.settle()
    rig.stop(clean=False)
    image = rig.path
    lost = 0
    for nth in range(1, 20):
        rig.path = rig.copied()
        recorder.fail("read", nth, errno.EIO)
        try:
            rig.start()
        except CannotCount as error:
            assert "references cannot be counted" in str(error)
            lost += 1
        except OSError:
            pass
        else:
            rig.stop(clean=False)
        finally:
            recorder.fail("read", 0, 0)
        rig.path = image
    assert lost > 0
