"""Recovery's files are asked for before recovery comes to them."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.log.read_ahead import ReadAhead

DIRECTORIES = 3000
AHEAD = 1024
LIBC = ctypes.CDLL(None)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("queues")
    for number in range(DIRECTORIES):
        directory = root / f"{number:04d}"
        directory.mkdir()
        if number % 50 == 0:
            (directory / "msgs").write_bytes(b"x" * 10_000)
    os.sync()
    return root


@pytest.fixture
def cold(tree: Path) -> Iterator[list[Path]]:
    """The files, none of them in the page cache."""
    paths = sorted(tree.glob("*/msgs"))
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    yield paths


def _cached(path: Path) -> bool:
    """Whether the file's first page is in the page cache; asking does not bring it there."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        there = ctypes.c_ubyte()
        address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
        assert LIBC.mincore(address, ctypes.c_size_t(mmap.PAGESIZE), ctypes.byref(there)) == 0
    return bool(there.value & 1)


def _until_cached(paths: list[Path]) -> None:
    deadline = time.monotonic() + 60
    while not all(_cached(path) for path in paths):
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def _names(tree: Path) -> list[str]:
    return [str(tree / f"{number:04d}") for number in range(DIRECTORIES)]


def test_it_brings_files_into_the_page_cache_before_they_are_read(
    tree: Path, cold: list[Path]
) -> None:
    ahead = ReadAhead(_names(tree))
    _until_cached(cold[: AHEAD // 50])
    for _ in range(DIRECTORIES):
        ahead.passed()
    _until_cached(cold[: AHEAD // 50])
    ahead.stop()


def test_it_stays_a_limited_way_before_the_reader(tree: Path, cold: list[Path]) -> None:
    if any(_cached(path) for path in cold):
        pytest.skip("this file system keeps everything in memory")
    ahead = ReadAhead(_names(tree))
    _until_cached(cold[: AHEAD // 50])
    ahead.stop()
    assert not any(_cached(path) for path in cold[AHEAD // 50 + 2 :])


def test_it_passes_over_what_is_not_there_and_may_be_stopped_at_any_time(tmp_path: Path) -> None:
    before = threading.active_count()
    for passed in (0, 1, 1500, 4000):
        ahead = ReadAhead([str(tmp_path / f"missing {number}") for number in range(DIRECTORIES)])
        for _ in range(passed):
            ahead.passed()
        ahead.stop()
        ahead.stop()
    assert threading.active_count() == before
