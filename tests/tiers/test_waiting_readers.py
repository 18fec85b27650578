"""Readers that wait while nothing reads from the object store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.features.tiers.cold import ColdCache
from broker.schema.tier_work import BLOCK
from broker.settings.config import Config


class File:
    """A copy on disk of which nothing has come."""

    length = 4 * BLOCK
    is_busy = False
    path = "cache/copy"

    def __init__(self) -> None:
        self.blocks: set[int] = set()

    def has(self, position: int, length: int) -> bool:
        return False


def test_a_block_that_is_waited_for_is_asked_for_once_however_long_it_takes() -> None:
    now = [0.0]
    asked: list[dict[str, Any]] = []
    carrier: Any = SimpleNamespace(is_there=False, give=lambda *_, **task: asked.append(task))
    host = SimpleNamespace(config=Config(), later=lambda _seconds, _callback: None)
    cache = ColdCache(host, carrier, "cache", lambda: now[0])
    tiered = SimpleNamespace(name="n", etag="e", length=4 * BLOCK, check_of=lambda block: block)
    summary: Any = SimpleNamespace(number=1, length=4 * BLOCK, tiered=tiered)
    store = SimpleNamespace(incarnation=7, copy_at=lambda _path, _length: File())
    told: list[str] = []
    cursor = SimpleNamespace(store=store, cold_run=0, cold_ready=told.append)
    assert cache.fetch(cursor, summary, 10, 2 * BLOCK) == 3
    for _ in range(100):
        now[0] += 0.01
        cache._look()
    assert cache.waiting == 1
    carrier.is_there = True
    cache._look()
    assert sorted(task["offset"] for task in asked) == [0, BLOCK, 2 * BLOCK]
    assert len(cache._queue) == 0
    assert told == []
