"""Rows T-L1 to T-L4: the location index of shared bodies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from broker.store.index.backends import open_index
from broker.store.index.bloom import RotatingBloom, bits_for
from broker.store.index.location_index import (
    ADD,
    ENTRY,
    REMOVE,
    IndexSettings,
    carry_out,
)
from tests.bench import generator, processes
from tests.bench.client import Client
from tests.bench.leveret import REPOSITORY, Leveret
from tests.bench.store.bodies import all_synced, figures
from tests.bench.store.frame import Bench, Figure, Row

MIB = 1 << 20
DICT_BYTES = 171
ERLANG_BYTES = 128


def ids(start: int, count: int) -> list[bytes]:
    """Ids as the body store makes them: they rise with time."""
    return [
        (1_700_000_000_000 + number // 500).to_bytes(6) + b"\0\1" + number.to_bytes(8)
        for number in range(start, start + count)
    ]


def fill(backend: str, directory: str, count: int) -> None:
    """Fills an index, in a process of its own, and prints RssAnon at each of 1, 5, 10 and 50
    million entries, as JSON rows of [entries, bytes over those of the empty process, seconds]."""
    capacity = max(1_000_000, min(count, 10_000_000))
    own = [os.getpid()]
    before = processes.resident_bytes(own, "RssAnon")
    index = open_index(IndexSettings(backend=backend, bloom_capacity=capacity), directory, False)
    began = time.perf_counter()
    rows = []
    marks = {count, *(mark for mark in (10**6, 5 * 10**6, 10**7) if mark < count)}
    for start in range(0, count, 512):
        batch = ids(start, min(512, count - start))
        index.apply([(ADD, id, ENTRY.pack(1 + start // 4096, 16, 5000, 1)) for id in batch])
        if (done := start + len(batch)) in marks or any(start < mark <= done for mark in marks):
            rows.append(
                (
                    done,
                    processes.resident_bytes(own, "RssAnon") - before,
                    time.perf_counter() - began,
                )
            )
    index.close(False)
    print(json.dumps(rows))


def _filled(bench: Bench, backend: str, count: int) -> list[tuple[int, int, float]]:
    directory = bench.base / f"index-{backend}"
    directory.mkdir()
    command = [sys.executable, "-m", "tests.bench.store.index", backend, str(directory), str(count)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    shutil.rmtree(directory)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [tuple(row) for row in json.loads(done.stdout)]


def constant_memory(bench: Bench) -> Iterator[Figure]:
    """T-L1."""
    for backend, count in (
        ("leveldb", bench.sized(100_000, 10_000_000, 50_000_000)),
        ("ram", bench.sized(100_000, 5_000_000, 50_000_000)),
    ):
        for entries, grown, seconds in _filled(bench, backend, count):
            per_entry = grown / entries
            beside = (
                f"{entries / seconds:,.0f} inserted/s; dict {DICT_BYTES} B, Erlang "
                f"{ERLANG_BYTES} B an entry"
            )
            if backend == "leveldb":
                yield Figure(
                    f"leveldb, {entries:,} entries: RssAnon",
                    f"{grown / MIB:.1f} MiB",
                    "<= 40 MiB with a filter of 10 M",
                    beside,
                    grown <= 40 * MIB,
                )
            else:
                yield Figure(
                    f"ram, {entries:,} entries: RssAnon",
                    f"{per_entry:.1f} B an entry",
                    "<= 64 B an entry",
                    beside,
                    per_entry <= 64,
                )


def filter_value(bench: Bench) -> Iterator[Figure]:
    """T-L2."""
    capacity = bench.sized(20_000, 1_000_000)
    strangers = ids(10**9, bench.sized(20_000, 200_000))
    for load in (0.5, 1, 2, 4):
        bloom = RotatingBloom(capacity)
        for id in ids(0, int(capacity * load)):
            bloom.add(id)
        began = time.perf_counter()
        wrong = sum(map(bloom.may_hold, strangers))
        each = (time.perf_counter() - began) / len(strangers)
        yield Figure(
            f"filter at {load} x its capacity: wrong answers",
            f"{wrong / len(strangers):.2%}",
            "<= 1.2 % at 1 x; more beyond" if load >= 1 else "<= 1.2 %",
            f"{each * 1e6:.2f} us a negative answer",
            wrong / len(strangers) <= 0.012 if load <= 1 else None,
        )
    bloom = RotatingBloom(10**6)
    bloom.begin_rotation()
    yield Figure(
        "both filters while they rotate, per million entries",
        f"{bloom.memory / MIB:.3f} MiB",
        "<= 2.29 MiB",
        f"{bits_for(10**6) / 10**6:.3f} bits an entry, for one wrong answer in a hundred",
        bloom.memory <= 2.29 * MIB,
    )
    count = bench.sized(20_000, 1_000_000)
    for with_filter in (True, False):
        directory = bench.base / "index-filter"
        directory.mkdir()
        # A filter that is far too small says "maybe" to everything.
        settings = IndexSettings(backend="leveldb", bloom_capacity=count if with_filter else 1)
        index = open_index(settings, str(directory), False)
        value = ENTRY.pack(1, 16, 5000, 1)
        began = time.perf_counter()
        for start in range(0, count, 512):
            carry_out(index, [(id, value) for id in ids(start, min(512, count - start))])
        seconds = time.perf_counter() - began
        reads = index.figures()["lookups"] / count
        index.close(False)
        shutil.rmtree(directory)
        yield Figure(
            f"{count:,} new bodies {'behind' if with_filter else 'without'} the filter: database "
            "reads each",
            f"{reads:.4f}",
            "<= 0.012" if with_filter else "",
            f"{seconds / count * 1e6:.1f} us each",
            reads <= 0.012 if with_filter else None,
        )


def rotation_rule(bench: Bench) -> Iterator[Figure]:
    """T-L3: over an index in LevelDB, with additions and questions while it rotates."""
    for adds, removes, rotates in (
        (600_001, 300_001, True),
        (600_000, 300_001, False),
        (600_001, 300_000, False),
    ):
        directory = bench.base / "index-rotation"
        directory.mkdir()
        index = open_index(
            IndexSettings(backend="leveldb", bloom_capacity=10**6), str(directory), False
        )
        value = ENTRY.pack(1, 16, 5000, 1)
        every = ids(0, adds)
        index.apply([(ADD, id, value) for id in every])
        index.apply([(REMOVE, id, None) for id in every[:removes]])
        began = index.figures()["bloom"]["state"] == "rotating"
        more = ids(adds, 20_000)
        missed = 0
        for part in _parts(more):
            index.apply([(ADD, id, value) for id in part])
            missed += sum(index.get(id) is None for id in part)
            missed += sum(index.get(id) is None for id in every[-500:])
            index.step()
        while index.step():
            missed += sum(index.get(id) is None for id in every[removes : removes + 100])
        bloom = index.bloom  # type: ignore[attr-defined]
        missed += sum(not bloom.may_hold(id) for id in (*every[removes:], *more))
        strangers = ids(10**9, 100_000)
        wrong = sum(map(bloom.may_hold, strangers)) / len(strangers)
        right = began is rotates and bloom.rotations == int(rotates)
        index.close(False)
        shutil.rmtree(directory)
        yield Figure(
            f"{adds:,} added and {removes:,} removed of 1,000,000",
            f"{'rotates' if began else 'stays'}; {missed} missed",
            "rotates" if rotates else "stays",
            f"wrong answers afterwards {wrong:.2%} (<= 1.2 %)",
            right and not missed and wrong <= 0.012,
        )


def _parts(rows: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(rows), 500):
        yield rows[start : start + 500]


class _Peak:
    """The highest RssAnon of a broker while it starts."""

    def __init__(self, broker: Leveret) -> None:
        self.bytes = 0
        self._broker = broker
        self._ended = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended:
            if (server := self._broker.server) is not None:
                self.bytes = max(self.bytes, processes.resident_bytes([server.pid], "RssAnon"))
            time.sleep(0.02)

    def end(self) -> int:
        self._ended = True
        self._thread.join()
        return self.bytes


def rebuilt(bench: Bench) -> Iterator[Figure]:
    """T-L4: small bodies, so that many fit on the disk; each is in two queues."""
    count = bench.sized(20_000, 1_000_000, 10_000_000)
    for backend in ("leveldb", "ram"):
        broker = bench.broker("--embed-below", "0", "--message-store-index", backend)
        broker.patience = 600
        options = ["--fanout", "2", "--consumers", "0", "--persistent", "--keep"]
        options += ["--body", "16", "--confirm", "1000", "--patience", "300"]
        generator.run(broker.port, [*options, "--count", str(count)])
        all_synced(broker)
        idle = bench.anonymous_bytes(broker)
        for clean in (False, True):
            if clean:
                broker.stop()
            else:
                broker.kill()
            files = [
                path
                for path in (broker.directory / "data/vhosts").rglob("*")
                if path.is_file() and path.suffix != ".bdy"
            ]
            began = time.perf_counter()
            size = sum(len(path.read_bytes()) for path in files)
            read = time.perf_counter() - began
            began = time.perf_counter()
            peak = _Peak(broker)
            broker.start()
            Client(broker.port).close()
            seconds = time.perf_counter() - began
            highest = peak.end()
            after = figures(broker)
            if (after["references"], after["index"]["entries"]) != (2 * count, count):
                raise RuntimeError(f"after a start there are others: {after}")
            if clean:
                yield Figure(
                    f"{backend}, {count:,} bodies: clean start",
                    f"{seconds:.2f} s",
                    "<= 1 s",
                    f"reading {size / 1e6:,.0f} MB alone {read:.2f} s",
                    seconds <= 1,
                )
                continue
            allowed = 90 * max(1.0, count / 10**7)
            yield Figure(
                f"{backend}, {count:,} bodies: start after kill -9, RssAnon at most",
                f"{seconds:.1f} s, {highest / MIB:.0f} MiB",
                "<= 90 s for 10 M, <= 100 MiB" if backend == "leveldb" else "<= 90 s for 10 M",
                f"reading {size / 1e6:,.0f} MB alone {read:.2f} s; before the kill "
                f"{idle / MIB:.0f} MiB",
                seconds <= allowed and (highest <= 100 * MIB or backend != "leveldb"),
            )
        bench.end()
        shutil.rmtree(broker.directory, ignore_errors=True)


ROWS = (
    Row("T-L1", "an index on disk takes constant memory", constant_memory),
    Row("T-L2", "a filter spares most questions", filter_value),
    Row("T-L3", "filters rotate exactly when they should", rotation_rule),
    Row("T-L4", "an index is built anew in constant memory", rebuilt),
)

if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], int(sys.argv[3]))
