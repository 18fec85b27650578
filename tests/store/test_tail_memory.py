"""Unwritten records in memory that grows: small tails are allocated, large ones mapped."""

from __future__ import annotations

import os
import time
from pathlib import Path

from broker.store.commit.tail_memory import count_spares
from tests.hostile.figures import resident_bytes
from tests.store.driven import Driven

BODY = bytes(range(256)) * 100


def test_a_tail_keeps_its_records_while_it_grows_and_its_memory_is_used_again(
    tmp_path: Path,
) -> None:
    driven = Driven(tmp_path, segment_size=64 << 20)
    bodies = [BODY[:length] for length in (1, 3_000, 9_000, *[20_000] * 60)]
    bodies.append(BODY * 100)  # 2.5 MB: more than a mapping has
    for round_number in range(2):
        before = count_spares()
        for body in bodies:
            driven.publish(body)
        if round_number:
            assert count_spares() < before
        takers = [driven.take() for _ in bodies]
        assert [taker.body for taker in takers] == bodies
        driven.sync()
        for taker in takers:
            driven.settle(taker)
    assert count_spares() > 0
    for _ in range(20):
        driven.persister.tick()
        driven.pump(lambda: not driven.persister.background.remover.open)
    assert count_spares() == 0
    driven.stop()


def test_a_record_larger_than_a_mapping_and_more_behind_it_are_kept(tmp_path: Path) -> None:
    driven = Driven(tmp_path, segment_size=64 << 20)
    bodies = [BODY * 60, b"small", BODY * 200, b"end"]
    for body in bodies:
        driven.publish(body)
    assert driven.drain() == bodies
    driven.sync()
    driven.stop()


def test_memory_of_many_large_tails_is_given_back(tmp_path: Path) -> None:
    driven = Driven(tmp_path, segment_size=64 << 20)
    before = resident_bytes(os.getpid())
    for _ in range(560):
        driven.publish(bytes(70_000))
    assert resident_bytes(os.getpid()) - before > 30 << 20
    driven.sync()
    deadline = time.monotonic() + 60
    while resident_bytes(os.getpid()) - before > 12 << 20:  # a thread gives it back
        assert time.monotonic() < deadline, "memory of written records is kept"
        driven.persister.tick()
        driven.pump(lambda: not driven.persister.background.remover.open)
        time.sleep(0.01)
    driven.stop()
