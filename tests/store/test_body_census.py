"""References are counted before there is an index: the census against plain dictionaries."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.store.bodies.file import TOC_ROW
from broker.store.index.backends import open_index
from broker.store.index.body_census import BodyCensus, CannotCount
from broker.store.index.location_index import ENTRY, IndexSettings
from tests.inner import count_reference
from tests.store import recorder

BACKENDS = ("ram", "leveldb")


def made(number: int) -> bytes:
    return (1_790_000_000_000 + number // 100).to_bytes(6) + b"\x00\x07" + number.to_bytes(8)


def table(numbers: list[int]) -> bytes:
    return b"".join(TOC_ROW.pack(made(n), 16 + 100 * at, 40 + n) for at, n in enumerate(numbers))


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    recorder.fail("write_content", 0, 0)


FILES = st.lists(st.lists(st.integers(0, 5000), max_size=40, unique=True), max_size=12)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=FILES,
    references=st.lists(st.integers(0, 5000), max_size=200),
    keeps_all=st.booleans(),
)
def test_an_index_built_anew_holds_what_is_referred_to(
    tmp_path_factory: pytest.TempPathFactory,
    backend: str,
    files: list[list[int]],
    references: list[int],
    keeps_all: bool,
) -> None:
    path = tmp_path_factory.mktemp("index")
    index = open_index(IndexSettings(backend=backend, bloom_capacity=1000), str(path), False)
    index.counter.expect(sum(map(len, files)))
    model: dict[int, list[int]] = {}
    for number, bodies in enumerate(files, 3):
        bodies[:] = [n for n in bodies if n not in model]  # an id is in one file
        index.counter.add_file(number, table(bodies))
        for at, n in enumerate(bodies):
            model[n] = [number, 16 + 100 * at, 40 + n, 0]
    # Half of them in order, as queues refer to them, half at random.
    for n in [*sorted(model)[::2], *references]:
        assert count_reference(index.counter, made(n)) == (n in model)
        if n in model:
            model[n][3] += 1
    if keeps_all:
        for row in model.values():
            row[3] += 1
    living = dict.fromkeys(range(3, 3 + len(files)), 0)
    for file, _, length, count in model.values():
        living[file] += length if count else 0
    assert index.end_building(keeps_all) == living
    expected = {made(n): ENTRY.pack(*row) for n, row in model.items() if row[3]}
    assert dict(index.fold()) == expected
    assert index.count == len(expected)
    index.close(True)
    index = open_index(IndexSettings(backend=backend, bloom_capacity=1000), str(path), True)
    assert dict(index.fold()) == expected
    assert all(index.get(id) == value for id, value in expected.items())
    index.close(False)


def counted(census: BodyCensus) -> dict[bytes, int]:
    return {
        rows[at : at + 16]: int.from_bytes(rows[at + 28 : at + 32], "little")
        for rows in census.survivors(False)
        for at in range(0, len(rows), 32)
    }


def test_a_census_holds_a_part_of_its_file_only(tmp_path: Path) -> None:
    """More rows than its pages have room for, asked for in every order."""
    count = 200_000
    census = BodyCensus(str(tmp_path))
    for file in range(10):
        census.add_file(file + 1, table(list(range(file, count, 10))))
    dice = random.Random(7)
    wanted: dict[bytes, int] = {}
    for n in [*range(0, count, 7), *(dice.randrange(count) for _ in range(20_000))]:
        assert count_reference(census, made(n))
        wanted[made(n)] = wanted.get(made(n), 0) + 1
    assert not count_reference(census, made(count))
    assert counted(census) == wanted
    assert not census.in_memory
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("nth", [1, 3, 8])
def test_a_census_does_without_the_disk_when_it_is_full(tmp_path: Path, nth: int) -> None:
    """The first write, one of a later file, or one of a page that changed."""
    census = BodyCensus(str(tmp_path))
    recorder.fail("write_content", nth, errno.ENOSPC)
    wanted: dict[bytes, int] = {}
    for file in range(5):
        census.add_file(file + 1, table(list(range(file * 40_000, (file + 1) * 40_000))))
    for n in range(0, 200_000, 3):
        assert count_reference(census, made(n))
        wanted[made(n)] = 1
    assert count_reference(census, made(0))
    wanted[made(0)] = 2
    assert counted(census) == wanted
    assert census.in_memory


def test_a_census_tells_of_a_disk_that_fails(tmp_path: Path) -> None:
    census = BodyCensus(str(tmp_path))
    recorder.fail("write_content", 1, errno.EIO)
    with pytest.raises(CannotCount, match="Input/output error"):
        census.add_file(1, table([1, 2, 3]))
