"""Short scripts that a workload begins with, while its queues are empty: each leads the store
through steps that chance alone seldom comes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.fields import properties
from tests.crash import inside
from tests.crash.promises import Copy

if TYPE_CHECKING:
    from tests.crash.workload import Workload

FANNED = ("plain", "levels", "reject")
"""Queues of the exchange that large bodies are shared through."""

PERSISTENT = properties.encode({"delivery_mode": 2})


def publish(workload: Workload, queue: str, size: int) -> None:
    """One message of about `size` bytes, confirmed with its round."""
    body = workload.next_body(size)
    copy = Copy(workload.numbers, body, [(workload.moment(), queue)])
    workload.promises.add(copy)
    workload.ready[queue].append(copy)
    inside.publish(workload.inside.vhost, "", queue, PERSISTENT, body)
    workload.confirm_later([copy])


def take_all(workload: Workload, queue: str) -> None:
    """Delivers all that is ready."""
    while workload.ready[queue]:
        workload.take_one(queue)


def finish(workload: Workload, queue: str, numbers: set[int]) -> None:
    """Acknowledges the messages with these numbers; they were taken."""
    left = []
    for taker, copy in workload.taken[queue]:
        if copy.number in numbers:
            workload.acknowledge(queue, taker, copy)
        else:
            left.append((taker, copy))
    workload.taken[queue] = left


def shared_bodies(workload: Workload) -> None:
    """One file is rewritten, then several are merged with it, then that one goes too."""
    for dead in (3, 9, 13):
        first = workload.numbers + 1
        for _ in range(5 if dead == 3 else 10):
            workload.fan_out(400, 0)
        workload.tick()
        for queue in FANNED:
            take_all(workload, queue)
            finish(workload, queue, set(range(first, first + dead)))
        workload.tick()
        workload.inside.collect()
        workload.tick()
        workload.inside.collect()
    workload.fan_out(1700, 1)
    workload.tick()


def holes(workload: Workload) -> None:
    """A sealed segment whose beginning is settled, but not its end."""
    first = workload.numbers + 1
    for _ in range(5):
        publish(workload, "plain", 4000)
    workload.tick()
    take_all(workload, "plain")
    finish(workload, "plain", set(range(first, first + 3)))
    workload.tick()


def stream(workload: Workload) -> None:
    """Retention takes segments; places are kept before and after a restart."""
    for _ in range(3):
        for _ in range(14):
            workload.stream.publish(workload.inside, workload.next_body(900))
        workload.tick()
        workload.stream.keep_place(workload.inside)
    workload.tick()
    workload.restart(clean=False)
    workload.stream.keep_place(workload.inside)
    workload.tick()


def delayed(workload: Workload) -> None:
    """Runs of the timing index come and go."""
    for _ in range(7):
        workload.publish_late()
    workload.tick()
    workload.inside.pump(lambda: workload.inside.ring() is None and not workload.inside.held)
    workload.tick()


def stops(workload: Workload) -> None:
    """A clean stop, and a kill behind it."""
    workload.fan_out(400, 2)
    workload.restart(clean=True)
    workload.fan_out(400, 3)
    workload.restart(clean=False)


TOURS: dict[str, Callable[[Workload], None]] = {
    "bodies": shared_bodies,
    "holes": holes,
    "stream": stream,
    "delayed": delayed,
    "stops": stops,
}
