"""Rows T-H1 to T-H5: the random index of streams, each beside what is done without its idea."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence

from broker.features.stream_index.feeding import Part, Stream, feed
from broker.store.files import disk
from broker.store.keys.compaction import compacted
from broker.store.keys.hashing import hash_of
from broker.store.keys.rows import Hit
from broker.store.keys.searching import IN_FLIGHT, Answer, Key, Message, Search, Wanted
from broker.store.keys.series import Series
from broker.store.keys.unsealed import Unsealed
from tests.bench import processes
from tests.bench.store.frame import Bench, Figure, Row
from tests.store.directory_blobs import DirectoryBlobs
from tests.store.key_series import NAME, Model, with_objects
from tests.tiers.indexed import Indexed

CAPACITY = 262_144
WANTED_ITEMS = 500_000
WANTED_SHARE = 0.85
ALWAYS = 2**62


def writing(bench: Bench) -> Iterator[Figure]:
    """T-H1."""
    count = bench.sized(20_000, 100_000)
    rig = Indexed(bench.base / "indexed", bench.base / "objects", stream_index_items=CAPACITY)
    rig.start()
    try:
        arguments = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 16 << 20}
        rig.vhost.declare_queue("s", durable=True, arguments=arguments)
        for _ in range(0, count, 1000):
            rig.publish(1000)
        store = rig.stream.store
        stream = Stream(rig.stream.incarnation, store.directory, ("message_id", "header:shared"))
        directory = bench.base / "series"
        series = Series(str(directory), CAPACITY)
        series.recover()
        parts = store.synced_parts(0, 0, 1_000_000)
        began = time.perf_counter()
        for summary, position, end in parts:
            path = stream.segment(summary.number)
            feed(series, Part(stream, summary, position, end, None, path, end), 1 << 40)
        series.flush()
        took = time.perf_counter() - began
        rate = 2 * count / took
        yield Figure(
            f"items of {2 * count:,} keys into the index, read from segments",
            f"{rate:,.0f}/s",
            f">= {WANTED_ITEMS:,}/s",
            met=rate >= WANTED_ITEMS,
        )
        size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        yield Figure("bytes on disk for an item, unsealed", f"{size / 2 / count:.1f}", "32", "")
        while series.work_waits:
            series.compact_next()
        series.close()
    finally:
        rig.kill()


def compaction(bench: Bench) -> Iterator[Figure]:
    """T-H2."""
    directory = bench.base / "compaction"
    series = Series(str(directory), CAPACITY)
    series.recover()
    file = series.current()
    row = file.stream(1, (1, 8))
    hits = {b"one": 1, b"ten": 10, b"many": 500}
    every = {value: CAPACITY // count for value, count in hits.items()}
    for number in range(CAPACITY):
        value = next(
            (each for each, step in every.items() if number % step == len(each)), b"%d" % number
        )
        file.put(hash_of(file.secret, NAME, value), row, 1, number, 100, number)
    file.pass_by(row, 1, CAPACITY, CAPACITY)
    series.flush()
    series.seal()
    unsealed = series.files[0]
    assert isinstance(unsealed, Unsealed)
    began = time.perf_counter()
    content = compacted(unsealed)
    took = time.perf_counter() - began
    yield Figure(
        f"putting {CAPACITY:,} items in order",
        f"{took * 1000:.0f} ms",
        "<= 150 ms",
        "",
        took <= 0.15,
    )
    yield Figure(
        "bytes of an item, filter and slots included",
        f"{len(content) / CAPACITY:.1f}",
        "",
        "32 unsealed",
    )
    chains = {value: _chain(unsealed, value) for value in hits}
    series.compact_next()
    for value, count in hits.items():
        reads = _reads(series, value)
        yield Figure(
            f"reads for a key with {count} hits in one file",
            f"{reads}",
            "filter, slot and array: 3",
            f"chain without compaction: {chains[value]}",
            reads == 3,
        )
    series.close()


def _chain(file: Unsealed, value: bytes) -> int:
    """Reads that a walk through a key's chain on disk takes: one for each of its items."""
    return 1 + len(file.find(hash_of(file.secret, NAME, value), -ALWAYS, ALWAYS, None))


def _reads(series: Series, value: bytes) -> int:
    """Reads that a search does before it looks at messages."""
    count = 0
    real = disk.read_part

    def counting(path: str, offset: int, length: int) -> bytes:
        nonlocal count
        count += 1
        return real(path, offset, length)

    disk.read_part = counting
    try:
        search(series, value, 1000)
    finally:
        disk.read_part = real
    return count


def search(series: Series, value: bytes, most: int) -> Answer:
    """A search whose hits are all taken for true."""

    def verify(hits: Sequence[Hit]) -> list[Message]:
        return [Message(hit.time, 1, hit.position, 1, hit.position) for hit in hits]

    return Search(series, Key(NAME, value), Wanted(-ALWAYS, ALWAYS, most), verify).run()


def requests(bench: Bench) -> Iterator[Figure]:
    """T-H3."""
    files, capacity = 200, 256
    directory = bench.base / "requests"
    directory.mkdir()
    model = with_objects(directory, capacity)
    for number in range(files * capacity):
        model.add(b"everywhere" if number % 64 == 0 else b"%d" % number, number)
    model.compact()
    while model.upload_next():
        pass
    found = model.search(b"everywhere", most=10)
    needed = -(-10 // (capacity // 64))
    yield Figure(
        f"GETs for the 10 newest of a key in all of {files} files",
        f"{found.fetched}",
        f"<= {needed + IN_FLIGHT}",
        f"search of all files: {files}",
        found.fetched <= needed + IN_FLIGHT,
    )
    asked = bench.sized(50, 1000)
    step = max(1, files * capacity // asked)
    numbers = [n for n in range(1, files * capacity, step) if n % 64]
    gets = sum(model.search(b"%d" % number).fetched for number in numbers) / len(numbers)
    yield Figure(
        f"GETs for a key in one of {files} files, mean of {len(numbers)}",
        f"{gets:.2f}",
        "<= 2",
        f"search of all files: {files}",
        gets <= 2,
    )
    gets = sum(model.search(b"absent %d" % number).fetched for number in range(asked)) / asked
    share = gets / files
    yield Figure(
        f"GETs for an absent key, mean of {asked}",
        f"{gets:.2f} ({share:.2%} of files)",
        "<= 0.5 % of the files",
        f"search of all files: {files}",
        share <= 0.005,
    )


def many_items(bench: Bench) -> Iterator[Figure]:
    """T-H4: files of their full size. `--full` is 52 million messages in 200 of them."""
    files = bench.sized(3, 20, 200)
    items = files * CAPACITY
    directory = bench.base / "items"
    directory.mkdir()
    blobs = DirectoryBlobs(str(directory / "objects"))
    series = Series(str(directory / "index"), CAPACITY, blobs=blobs)
    series.recover()
    before = processes.resident_bytes([os.getpid()])
    began = time.perf_counter()
    for number in range(0, items, CAPACITY):
        _fill(series, range(number, number + CAPACITY))
        sealed = series.next_upload(0)
        assert sealed is not None
        name, etag = blobs.put(sealed.head.number, disk.read(sealed.path))
        series.uploaded(sealed.head.number, name, etag)
    took = time.perf_counter() - began
    yield Figure(f"{items:,} items into {files} files, put there by Python", f"{took:.0f} s")
    grown = processes.resident_bytes([os.getpid()]) - before
    most = (32 << 20) + files * 8192
    yield Figure(
        "memory that all these files take, the open one included",
        f"{grown / 2**20:.1f} MiB",
        f"<= {most / 2**20:.1f} MiB",
        "",
        grown <= most,
    )
    yield from _asked(series, files, items)
    series.close()


def _fill(series: Series, numbers: range) -> None:
    """A whole file of messages, whose key is their number, put in order."""
    file = series.current()
    row = file.stream(1, (1 + numbers.start // CAPACITY, 8))
    for number in numbers:
        place = 1 + number // CAPACITY, number % CAPACITY
        file.put(hash_of(file.secret, NAME, b"%d" % number), row, *place, 100, number)
    file.pass_by(row, 1 + numbers.start // CAPACITY, CAPACITY, numbers[-1])
    series.seal()
    while series.compact_next():
        pass


def _asked(series: Series, files: int, items: int) -> Iterator[Figure]:
    """What a thousand searches for keys that are there, and for others, ask the store."""
    chance = random.Random(1)

    def asked(number: int) -> Answer:
        def verify(hits: Sequence[Hit]) -> list[Message | None]:
            places = ((hit.segment - 1) * CAPACITY + hit.position for hit in hits)
            return [Message(0, 1, at, 1, at) if at == number else None for at in places]

        key = Key(NAME, b"%d" % number)
        return Search(series, key, Wanted(-ALWAYS, ALWAYS, 10), verify).run()

    for name, numbers, most in (
        ("a key in one", [chance.randrange(items) for _ in range(1000)], 2.0),
        ("an absent key in", [items + chance.randrange(items) for _ in range(1000)], files / 200),
    ):
        began = time.perf_counter()
        answers = [asked(number) for number in numbers]
        took = (time.perf_counter() - began) / len(answers)
        expected = int(numbers[0] < items)
        if any(len(each.messages) != expected for each in answers):
            raise RuntimeError(f"{name}: not every search found {expected} messages")
        gets = sum(each.fetched for each in answers) / len(answers)
        yield Figure(
            f"GETs for {name} of {files} files, {items:,} items; {took * 1000:.1f} ms",
            f"{gets:.3f}",
            f"<= {most:g}",
            f"search of all files: {files}",
            gets <= most,
        )


def recovery(bench: Bench) -> Iterator[Figure]:
    """T-H5; the kills at each step are tests (`tests/store/test_key_index_damage.py`)."""
    files = bench.sized(200, 4000)
    directory = bench.base / "recovery"
    model = Model(directory, 64)
    for number in range(files * 64):
        model.add(b"%d" % number, number)
        if number % 6400 == 0:
            model.compact()
    model.compact()
    began = time.perf_counter()
    model.opened()
    took = time.perf_counter() - began
    yield Figure(f"a start with {files:,} finished files", f"{took:.2f} s", "<= 2 s", "", took <= 2)


ROWS = (
    Row("T-H1", "an index is written behind its stream", writing),
    Row("T-H2", "a key is found with one read of a compacted file", compaction),
    Row("T-H3", "a search asks the store only for what it needs, and ends early", requests),
    Row("T-H4", "200 files of 262,144 items each are no dearer than a few", many_items),
    Row("T-H5", "a start looks at the heads of the files only", recovery),
)
