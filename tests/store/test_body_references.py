"""Who refers to a shared body, where that is not told at once: references that a thread reads while
rounds go on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.store.bodies_rig import PROPERTIES, Rig, body


def directory_of(rig: Rig, number: int) -> str:
    return f"queues/{(1 << 32) + 100 + number:016x}"


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_rounds_cost_the_same_while_the_references_of_a_purged_backlog_are_read(
    tmp_path: Path, how: str
) -> None:
    rig = Rig(tmp_path / "data", segment_size=4096)
    number = 0
    while rig.queues[0].segments < 4:
        rig.publish(body(number), [0, 1])
        number += 1
        if number % 20 == 0:
            rig.settle()
    rig.settle()
    held = threading.Event()
    rig.persister.collecting.submit(held.wait, lambda *_: None)
    getattr(rig.queues[0], how)()
    waiting = []
    for _ in range(6):
        rig.queues[2].put(b"x", b"k", PROPERTIES, b"of somebody else", True)
        rig.persister.after_round(lambda: None)
        rig.turn.run()
        rig.persister.drain_writer()
        waiting.append(len(rig.persister.retries))
    held.set()
    rig.settle()
    # Four segments wait, and their store is asked once in each round.
    assert waiting == [1] * 6
    assert rig.bodies.references == number
    assert set(rig.image().values()) == {1}
    assert list(rig.path.glob(f"{directory_of(rig, 0)}/msgs.*")) == []
    rig.stop()
