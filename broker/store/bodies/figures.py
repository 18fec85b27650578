"""The figures of all vhosts' shared bodies, added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.store.bodies.store import BodyStore

SUMS = (
    "files",
    "bytes",
    "live_bytes",
    "garbage_bytes",
    "references",
    "in_flight",
    "in_flight_bytes",
    "shared",
    "shared_bytes",
    "written",
    "written_bytes",
    "buffer_writes",
    "cancelled_writes",
    "cancelled_bytes",
    "in_flight_hits",
    "in_flight_misses",
    "cache_hits",
    "cache_misses",
    "dangling",
    "gc_runs",
    "gc_copied_bytes",
    "gc_reclaimed_bytes",
    "gc_running",
)
INDEX_SUMS = ("entries", "memory", "lookups")
BLOOM_SUMS = ("bits", "bytes", "adds", "removes", "rotations", "false_positives")


def body_figures(stores: Iterable[BodyStore], backend: str) -> dict[str, Any]:
    """Counts and bytes as `BodyStore.figures` has them, of every store that was ever used, and
    `stores`, how many those are. `index` says the backend and its sums, and in `bloom` those of its
    filters (None with `ram`); a filter's `state` is `rotating` while one of them rotates."""
    sums: dict[str, Any] = dict.fromkeys(SUMS, 0)
    index: dict[str, Any] = {"backend": backend, **dict.fromkeys(INDEX_SUMS, 0)}
    bloom: dict[str, Any] = {"state": "clean", **dict.fromkeys(BLOOM_SUMS, 0)}
    used = 0
    for store in stores:
        if store.unused:
            continue
        used += 1
        figures = store.figures()
        for name in SUMS:
            sums[name] += figures[name]
        if figures["index"] is None:
            continue
        for name in INDEX_SUMS:
            index[name] += figures["index"][name]
        if (filters := figures["index"]["bloom"]) is not None:
            for name in BLOOM_SUMS:
                bloom[name] += filters[name]
            if filters["state"] != "clean":
                bloom["state"] = filters["state"]
    index["bloom"] = bloom if backend == "leveldb" else None
    return {"stores": used, **sums, "index": index}
