"""The broker's periodic work.

Five times a second the persister checks whether something has waited long enough to be written, and
`Stall` whether the disk answers. Once a second some queues are checked for whether they may rest,
and each feature does its periodic steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broker.kernel import clock
from broker.kernel.through import Through
from broker.process.allocator import give_memory_back
from broker.process.garbage import YOUNG_EVERY_NS, Garbage
from broker.server.alarms import MEMORY

if TYPE_CHECKING:
    from broker.server.app import Broker

TICK_S = 0.2
SWEEP_S = 1.0
# A queue without traffic for this long gives back what it holds in memory, and an empty one its
# files.
REST_AFTER_S = 10.0
RESTS_PER_SWEEP = 256
RESTS_PER_STEP = 16


class PeriodicWork:
    """Beats from `start` until the broker's timers are closed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._round = self._rest_queues()
        self._garbage = Garbage(lambda: broker.loop.run_in_executor(None, give_memory_back))

    def start(self) -> None:
        self._broker.turn.is_sliced = True  # from now on others wait for what takes long
        self._garbage.start(self._broker.loop.time())
        self._broker.sockets.walk_every_ns = YOUNG_EVERY_NS
        self._broker.sockets.walk_over_young = self._garbage.walk_over_young
        self._broker.timers.later(TICK_S, self._tick)
        self._broker.timers.later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        """Closes the broker's timers."""
        self._broker.timers.close()
        self._broker.sockets.walk_over_young = None
        self._garbage.stop()

    def _tick(self) -> None:
        # First: what fails in one round must not be the end of all.
        self._broker.timers.later(TICK_S, self._tick)
        self._broker.persister.tick()
        self._broker.stall.look()

    def _sweep(self) -> None:
        self._broker.timers.later(SWEEP_S, self._sweep)
        rests = self._rest_some()
        if next(rests, False) is None:
            self._broker.run_task(self._step_through(rests))
        self._garbage.tick(
            self._broker.loop.time(),
            is_quiet=not self._broker.connections,
            is_short=MEMORY in self._broker.alarms,
        )
        for vhost in self._broker.vhosts.values():
            vhost.bodies.tick(clock.now() / 1000)
        for feature in self._broker.features:
            steps = feature.tick(clock.now())
            if steps is not None:
                self._broker.run_task(self._step_through(steps))

    def _rest_some(self) -> Iterator[None]:
        """Continues the round over all queues, a few at a step: caches hold none of them."""
        for number in range(1, RESTS_PER_SWEEP + 1):
            if next(self._round, None) is None:
                self._round = self._rest_queues()
                return
            if number % RESTS_PER_STEP == 0:
                yield None

    def _rest_queues(self) -> Iterator[Any]:
        """Goes round all queues once, one per step; those whose counters stood still since the last
        round rest."""
        for vhost in list(self._broker.vhosts.values()):
            for queue in Through(vhost.queues.values()):
                if queue.store is not None:
                    queue.rest_if_idle(self._broker.loop.time(), REST_AFTER_S)
                yield queue

    async def _step_through(self, steps: Iterable[Callable[[], object] | None]) -> None:
        """Runs a feature's generator between turns; what waits for the disk goes to a thread."""
        for step in steps:
            if step is not None:
                await self._broker.loop.run_in_executor(None, step)
            else:
                await asyncio.sleep(0)
