"""Kinds of workloads: how a broker is set up for each, and what its script does how often.

Everything is made so small that files are sealed, merged, rotated and rewritten after a few
messages.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from broker.store.bodies.settings import BodySettings
from broker.store.commit.sync_method import ALL, EACH, SyncMethod
from broker.store.directory import journal_compaction
from broker.store.index import leveldb_index
from broker.store.index.location_index import IndexSettings
from broker.vhosts import vhost

EMBED_BELOW = 100
BODY_FILE = 2048
OWN_FILE = 1500


def small_bodies(backend: str) -> BodySettings:
    """Shared bodies from 100 bytes on, with a file of their own from 1500 bytes on, in files of
    2 KiB; Bloom filters that rotate after a handful."""
    return BodySettings(
        embed_below=EMBED_BELOW,
        file_size=BODY_FILE,
        own_file=OWN_FILE,
        write_buffer=1024,
        collect_quiet=0.0,
        index=IndexSettings(backend=backend, bloom_capacity=12),
    )


@dataclass(frozen=True)
class Profile:
    """A kind of workload. `weights`: how often the script takes a step, where it differs from
    `workload.STEPS`; `run_of`: delayed messages that make a run of the timing index; `tours`: what
    it begins with (`tests.crash.tours`)."""

    name: str
    segment_sizes: tuple[int, ...] = (2048, 4096, 65536)
    bodies: BodySettings = field(default_factory=BodySettings)
    open_files: int = 4096
    run_of: int = 16384
    weights: dict[str, int] = field(default_factory=dict)
    tours: tuple[str, ...] = ()

    def segment_size(self, chance: random.Random) -> int:
        """The segments' size of one workload."""
        return chance.choice(self.segment_sizes)


FAN_OUTS = {"publish": 4, "publish_fan": 12, "settle_all": 3, "collect": 3, "restart": 2}

PROFILES = {
    each.name: each
    for each in (
        Profile("queues"),
        Profile("bodies", bodies=small_bodies("ram"), weights=FAN_OUTS, tours=("bodies", "stops")),
        Profile(
            "index", bodies=small_bodies("leveldb"), weights=FAN_OUTS, tours=("bodies", "stops")
        ),
        Profile(
            "logs",
            segment_sizes=(16384,),
            run_of=3,
            tours=("holes", "stream", "delayed"),
            weights={
                "publish": 3,
                "publish_stream": 8,
                "keep_place": 3,
                "purge_stream": 1,
                "publish_late": 9,
                "take": 3,
                "settle": 3,
                "restart": 2,
            },
        ),
        Profile(
            "parts",
            segment_sizes=(2048,),
            bodies=small_bodies("leveldb"),
            open_files=4,
            run_of=3,
            tours=("stops", "delayed"),
            weights={
                "publish_fan": 6,
                "publish_stream": 4,
                "keep_place": 1,
                "publish_late": 2,
                "collect": 2,
            },
        ),
    )
}


def profile_of(seed: int, only: tuple[str, ...] = ()) -> Profile:
    """The kind of the workload with this seed: each in turn."""
    names = only or tuple(PROFILES)
    return PROFILES[names[seed % len(names)]]


@contextlib.contextmanager
def shrunk() -> Iterator[None]:
    """Limits that no setting has are small meanwhile, so that a few messages reach them, and no
    clock has a say in what is done."""
    small: tuple[tuple[Any, str, Any], ...] = (
        (vhost, "WASTE_MAX", 0),
        (journal_compaction, "LEAST_BYTES", 400),
        (journal_compaction, "GROWTH", 1),
        (leveldb_index, "OVERLAY_MAX", 4),
        (leveldb_index, "FOLD_STEP", 3),
        (SyncMethod, "choose", _either),
    )
    kept = [(place, name, getattr(place, name)) for place, name, _ in small]
    for place, name, value in small:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in kept:
            setattr(place, name, value)


def _either(_method: SyncMethod, files: int) -> str:
    """Both ways of syncing, by what there is to sync and not by how long it takes."""
    return ALL if files % 5 == 0 else EACH
