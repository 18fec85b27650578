"""The location index: both backends against a dict, the filters, the rotation rule."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.kernel.checksum import crc32c
from broker.store.index.backends import open_index
from broker.store.index.bloom import RotatingBloom
from broker.store.index.location_index import (
    ADD,
    CHANGE,
    ENTRY,
    REMOVE,
    IndexDamaged,
    IndexSettings,
    LocationIndex,
)

BACKENDS = ("ram", "leveldb")


def made(number: int) -> bytes:
    """The id of a body: time, boot, sequence."""
    return (1_790_000_000_000 + number // 100).to_bytes(6) + b"\x00\x07" + number.to_bytes(8)


def opened(path: Path, backend: str, *, clean: bool = False, bloom: int = 1000) -> LocationIndex:
    return open_index(IndexSettings(backend=backend, bloom_capacity=bloom), str(path), clean)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "change", "remove", "get", "flush", "reopen", "step"]),
        st.integers(0, 200),
        st.integers(1, 2**32 - 1),
    ),
    max_size=300,
)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_it_answers_like_a_dict(
    tmp_path_factory: pytest.TempPathFactory,
    backend: str,
    operations: list[tuple[str, int, int]],
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = opened(path, backend, bloom=60)
    model: dict[bytes, bytes] = {}
    for what, number, figure in operations:
        id = made(number)
        value = ENTRY.pack(figure, number, 24 + number, 2)
        if what == "add" and id not in model:
            index.apply([(ADD, id, value)])
            model[id] = value
        elif what == "change" and id in model:
            index.apply([(CHANGE, id, value)])
            model[id] = value
        elif what == "remove" and id in model:
            index.apply([(REMOVE, id, None)])
            del model[id]
        elif what == "flush":
            index.flush()
        elif what == "step":
            index.step()
        elif what == "reopen":
            index.close(True)
            index = opened(path, backend, clean=True, bloom=60)
        assert index.get(id) == model.get(id)
        assert index.count == len(model)
    assert dict(index.fold()) == model
    for number in range(201):
        assert index.get(made(number)) == model.get(made(number))
    index.close(False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_begins_empty_after_a_stop_that_was_not_clean(tmp_path: Path, backend: str) -> None:
    index = opened(tmp_path, backend)
    index.apply([(ADD, made(1), ENTRY.pack(1, 16, 99, 2))])
    index.flush()
    index.close(False)
    index = opened(tmp_path, backend)
    assert index.get(made(1)) is None
    assert list(index.fold()) == []
    index.close(False)


@pytest.mark.parametrize(("backend", "name"), [("ram", "index.ram"), ("leveldb", "bloom")])
def test_it_refuses_what_was_saved_and_is_damaged(tmp_path: Path, backend: str, name: str) -> None:
    index = opened(tmp_path, backend)
    index.apply([(ADD, made(n), ENTRY.pack(1, 16, 99, 2)) for n in range(100)])
    index.close(True)
    saved = (tmp_path / name).read_bytes()
    for damaged in (
        saved[:-1],
        saved[:50] + bytes([saved[50] ^ 1]) + saved[51:],
        b"",
    ):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(IndexDamaged):
            opened(tmp_path, backend, clean=True)
        (tmp_path / name).write_bytes(saved)
    index = opened(tmp_path, backend, clean=True)
    assert index.get(made(42)) == ENTRY.pack(1, 16, 99, 2)
    index.close(False)


@pytest.mark.parametrize("name", ["0*.log", "CURRENT", "MANIFEST-*"])
@pytest.mark.parametrize("how", ["zeros", "flip", "cut", "gone"])
def test_it_refuses_a_database_that_is_not_what_was_left(
    tmp_path: Path, name: str, how: str
) -> None:
    settings = IndexSettings(backend="leveldb", bloom_capacity=1000)
    index = open_index(settings, str(tmp_path), False)
    for number in range(20):
        index.apply([(ADD, made(number), ENTRY.pack(1, number, 30, 1))])
    index.close(True)
    (path,) = (tmp_path / "index").glob(name)
    data = bytearray(path.read_bytes())
    if how == "zeros":
        path.write_bytes(bytes(len(data)))
    elif how == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(data[:-1])
    else:
        path.unlink()
    with pytest.raises(IndexDamaged, match="is not what the last stop left"):
        open_index(settings, str(tmp_path), True)


def first_form(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """`index.ram` as the first version of it was: one entry behind the other."""
    rows = [id + value for id, value in entries]
    data = struct.pack("<4sIQ", b"LVRX", 1, len(rows)) + b"".join(rows)
    return data + struct.pack("<I", crc32c(data))


def test_it_reads_what_its_first_version_saved(tmp_path: Path) -> None:
    index = opened(tmp_path, "ram")
    for number in range(270_000):
        index.apply([(ADD, made(number), ENTRY.pack(1 + number, 16, 99, 2))])
    held = dict(index.fold())
    old = first_form(index.fold())
    index.close(False)
    (tmp_path / "index.ram").write_bytes(old)
    index = opened(tmp_path, "ram", clean=True)
    assert dict(index.fold()) == held
    assert index.figures()["memory"] / index.count <= 64
    index.close(True)
    assert (tmp_path / "index.ram").read_bytes()[4] == 2
    for damaged in (old[:-1], old[:1000] + b"?" + old[1001:]):
        (tmp_path / "index.ram").write_bytes(damaged)
        with pytest.raises(IndexDamaged):
            opened(tmp_path, "ram", clean=True)


@pytest.mark.parametrize("version", [0, 3])
def test_it_does_not_read_another_version(tmp_path: Path, version: int) -> None:
    index = opened(tmp_path, "ram")
    index.apply([(ADD, made(1), ENTRY.pack(1, 16, 99, 2))])
    index.close(True)
    saved = bytearray((tmp_path / "index.ram").read_bytes())
    saved[4] = version
    (tmp_path / "index.ram").write_bytes(saved)
    with pytest.raises(IndexDamaged, match="does not begin like a saved index"):
        opened(tmp_path, "ram", clean=True)


def test_it_takes_no_memory_for_a_damaged_table(tmp_path: Path) -> None:
    opened(tmp_path, "ram").close(True)
    saved = bytearray((tmp_path / "index.ram").read_bytes())
    # Behind the head a capacity and a count of each part: one too many, and more than there is.
    struct.pack_into("<IIII", saved, 16, 0, 1, 0xFFFFFFFF, 0)
    (tmp_path / "index.ram").write_bytes(saved)
    with pytest.raises(IndexDamaged):
        opened(tmp_path, "ram", clean=True)


def test_it_goes_on_in_the_tables_that_it_found(tmp_path: Path) -> None:
    """Parts that are saved as they lie grow, shrink and move their entries as before."""
    index = opened(tmp_path, "ram")
    dice = random.Random(3)
    model: dict[bytes, bytes] = {}
    for _ in range(6):
        for _ in range(30_000):
            id = made(dice.randrange(60_000))
            if dice.random() < 0.6:
                model[id] = ENTRY.pack(1 + dice.randrange(9), 16, 99, 2)
                index.apply([(ADD, id, model[id])])
            else:
                model.pop(id, None)
                index.apply([(REMOVE, id, None)])
        index.close(True)
        index = opened(tmp_path, "ram", clean=True)
        assert dict(index.fold()) == model
        assert index.count == len(model)
    index.apply([(REMOVE, id, None) for id in model])
    assert (index.count, index.figures()["memory"]) == (0, 0)
    index.close(False)


def test_its_memory_stays_below_64_bytes_an_entry(tmp_path: Path) -> None:
    index = opened(tmp_path, "ram")
    worst = 0.0
    for first in range(0, 600_000, 20_000):
        index.apply(
            [(ADD, made(n), ENTRY.pack(1, 16, 99, 2)) for n in range(first, first + 20_000)]
        )
        if index.count >= 100_000:
            worst = max(worst, index.figures()["memory"] / index.count)
    assert worst <= 64
    index.apply([(REMOVE, made(n), None) for n in range(600_000)])
    assert index.count == 0
    assert index.figures()["memory"] == 0


def test_it_never_denies_an_id_that_is_there(tmp_path: Path) -> None:
    """Not while the filters rotate either: additions and questions during the fold."""
    index = opened(tmp_path, "leveldb", bloom=1000)
    dice = random.Random(4)
    living: dict[int, None] = {}
    rotations = 0
    for number in range(20_000):
        index.apply([(ADD, made(number), ENTRY.pack(1, 16, 99, 2))])
        living[number] = None
        if len(living) > 900:
            gone = dice.choice(list(living))
            del living[gone]
            index.apply([(REMOVE, made(gone), None)])
        if number % 7 == 0:
            index.step()
        for each in dice.choices(list(living), k=3):
            assert index.get(made(each)) is not None
        rotations = index.figures()["bloom"]["rotations"]
    assert rotations >= 20
    assert all(index.get(made(each)) is not None for each in living)
    index.close(False)


@pytest.mark.parametrize(
    ("adds", "removes", "rotates"),
    [
        (600_001, 300_001, True),
        (600_000, 300_001, False),
        (600_001, 300_000, False),
        (1_000_000, 300_000, False),
        (600_000, 600_000, False),
    ],
)
def test_it_rotates_by_the_exact_rule(adds: int, removes: int, rotates: bool) -> None:
    bloom = RotatingBloom(1_000_000)
    for number in range(adds):
        bloom.add(made(number))
    assert [bloom.remove() for _ in range(removes)][-1] is rotates


def test_it_counts_on_from_what_is_left_when_it_rotates() -> None:
    bloom = RotatingBloom(100)
    for number in range(61):
        bloom.add(made(number))
    assert [bloom.remove() for _ in range(31)] == [False] * 30 + [True]
    bloom.begin_rotation()
    assert (bloom.adds, bloom.removes, bloom.rotating) == (30, 0, True)
    bloom.fold_in([made(number) for number in range(31, 61)])
    bloom.add(made(100))
    bloom.end_rotation()
    assert (bloom.adds, bloom.rotating, bloom.rotations) == (31, False, 1)
    assert all(bloom.may_hold(made(number)) for number in (*range(31, 61), 100))


def test_it_has_the_memory_and_the_wrong_answers_that_it_promises() -> None:
    bloom = RotatingBloom(1_000_000)
    assert bloom.memory == 1_198_133
    bloom.begin_rotation()
    assert bloom.memory / 2**20 <= 2.29
    bloom.end_rotation()
    bloom = RotatingBloom(200_000)
    for number in range(200_000):
        bloom.add(made(number))
    assert all(bloom.may_hold(made(number)) for number in range(200_000))
    wrong = sum(bloom.may_hold(os.urandom(16)) for _ in range(200_000))
    assert wrong / 200_000 <= 0.012
    ordered = sum(bloom.may_hold(made(number)) for number in range(200_000, 400_000))
    assert ordered / 200_000 <= 0.012


def test_it_degrades_and_does_not_break_beyond_its_capacity() -> None:
    bloom = RotatingBloom(20_000)
    wrong = []
    for factor in (1, 2, 4):
        for number in range(bloom.adds, factor * 20_000):
            bloom.add(made(number))
        wrong.append(sum(bloom.may_hold(os.urandom(16)) for _ in range(50_000)) / 50_000)
    assert wrong == sorted(wrong)
    assert wrong[2] < 0.9
    assert all(bloom.may_hold(made(number)) for number in range(80_000))


def test_it_is_the_same_filter_in_every_process() -> None:
    bloom = RotatingBloom(100)
    bloom.add(made(5))
    again = RotatingBloom.load(bloom.dump())
    assert again is not None
    assert again.dump() == bloom.dump()
    assert again.may_hold(made(5))
    assert RotatingBloom.load(bloom.dump()[:-1]) is None
