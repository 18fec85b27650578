"""Crashes of a collection of body files: the files as they are behind each of its operations."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.store import recorder
from tests.store.bodies_rig import Rig, body, settings_of

LIMIT = 64 << 10


def filled(path: Path, backend: str, count: int = 60, seed: int | None = None) -> Rig:
    """Five files of bodies in two queues; of queue 0 every message is settled, of queue 1 two of
    three. With a `seed`, sizes and what is settled are random."""
    chance = random.Random(seed)
    sizes = [5000 if seed is None else chance.randrange(4096, 9000) for _ in range(count)]
    rig = Rig(path, queues=2, settings=settings_of(backend, file_size=LIMIT))
    for number in range(count):
        rig.publish(body(number, sizes[number]), [0, 1])
    rig.settle()
    rig.queues[0].purge()
    for number, taken in enumerate([rig.get(1) for _ in range(count)]):
        if number % 3 if seed is None else chance.random() < 0.6:
            rig.queues[1].settle_place(taken.place)
        else:
            rig.queues[1].requeue_place(taken.place)
    rig.settle()
    return rig


def kept(rig: Rig) -> list[bytes | None]:
    """The bodies that queue 1 still has; they stay there."""
    taken = [rig.get(1) for _ in range(rig.queues[1].messages_ready)]
    for each in taken:
        rig.queues[1].requeue_place(each.place)
    return [each.body for each in taken]


def crashes_of_a_collection(path: Path, backend: str, seed: int | None = None) -> int:
    """Collects in a filled store at `path`, and starts on copies of the files as they were behind
    each operation: every body is there once, with its references (B1 to B3), and nothing else lives
    on (B5). Returns the number of states. Raises AssertionError."""
    rig = filled(path, backend, seed=seed)
    before, expected = rig.image(), kept(rig)
    directory = rig.path / "bodies"
    old = {path.name: path.read_bytes() for path in directory.glob("*.bdy")}
    recorder.record(True, True)
    try:
        rig.collect()
        steps = list(zip(recorder.recorded(), recorder.recorded_bytes(), strict=True))
    finally:
        recorder.record(False)
    rig.stop(clean=False)
    states = writes = 0
    files: dict[str, bytearray] = {name: bytearray(data) for name, data in old.items()}
    for (kind, path_of, offset, _, _), data in steps:
        name = path_of.rpartition("/")[2] if path_of else ""
        if not name.endswith((".bdy", ".tmp", ".toc")):
            continue
        if kind in ("write", "write_file"):
            content = files.setdefault(name, bytearray())
            del content[offset:]
            content += data or b""
        elif kind == "rename":
            files[name] = files.pop((data or b"").decode().rpartition("/")[2])
        elif kind == "unlink":
            files.pop(name, None)
        else:
            continue
        if kind == "write":
            # Records of a file that is not renamed yet: one of them says as much as all.
            writes += 1
            if writes % 8:
                continue
        states += 1
        image = rig.copied()
        for each in (image / "bodies").iterdir():
            if each.suffix in (".bdy", ".tmp", ".toc"):
                each.unlink()
        for each_name, content in files.items():
            (image / "bodies" / each_name).write_bytes(content)
        copy = Rig(image, queues=2, settings=rig.settings)
        assert copy.image() == before
        assert kept(copy) == expected
        copy.collect()
        figures = copy.bodies.figures()
        assert figures["bytes"] <= 2 * figures["live_bytes"] + 3 * LIMIT
        assert copy.image() == before
        copy.stop(clean=False)
        shutil.rmtree(image)
    return states
