"""The job that computes runs, kept while there is work and for a moment after it.

Starting Spark costs some seconds of CPU, which runs that wait for each other pay once. A job is
ended when nothing waits and nothing came for `spark_keep`, when it takes more memory than
`spark_keep_memory`, when it has computed RUNS_MAX runs, and when a run failed or was cancelled.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from .child import Child
from .client import SparkKept
from .orders import Outcome, Specification
from .runs import Progress

# Spark deletes what it shuffled when its garbage collector comes to it: not all may pile up.
RUNS_MAX = 50


class KeptJob:
    """At most one job's process at a time. Spark's temporary files are below `place`, which is
    emptied.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        shutil.rmtree(place, ignore_errors=True)
        self._child: Child | None = None
        self._cancelled = False
        self._since_ms = 0
        self._memory = 0
        self._ending: asyncio.Task[None] | None = None

    async def run(
        self, specification: Specification, log: Path, tell: Callable[[Progress], None]
    ) -> Outcome:
        """As Child.run, in the process that is there, or in a new one."""
        self._cancelled = False
        await self._stay()
        while not self._cancelled:
            if self._child is not None and self._child.is_over:
                await self._child.end()
                self._child = None
            was_kept = self._child is not None
            if self._child is None:
                self._child = Child(self._place)
                self._since_ms = time.time_ns() // 1_000_000
            try:
                child = self._child
                outcome = await child.run(specification, log, tell)
            except OSError:
                self._child = None
                raise
            died_before = was_kept and outcome.error is not None and not child.was_heard
            if not (outcome.again or died_before):
                break
        else:
            outcome = Outcome(error="cancelled")
        if self._cancelled or (self._child is not None and self._child.is_over):
            self._child = None
        return outcome

    @property
    def is_kept(self) -> bool:
        """Whether a process of an earlier run is there for the next one."""
        return self._child is not None and not self._child.is_over

    @property
    def was_cancelled(self) -> bool:
        """Whether `cancel` was called during the last run."""
        return self._cancelled

    async def cancel(self) -> None:
        """End the run under way, and its process."""
        self._cancelled = True
        if self._child is not None:
            await self._child.cancel()

    async def rest(self, seconds: float, memory_max: int, *, more: bool) -> None:
        """A run is over. With `more` runs waiting the process stays, else it is ended so much later
        unless it gets another run by then."""
        child = self._child
        if child is None:
            return
        self._memory = child.memory()
        if self._memory > memory_max or child.runs >= RUNS_MAX:
            await self.close()
        elif not more:
            self._ending = asyncio.create_task(self._end_after(child, seconds))

    def standing(self) -> SparkKept | None:
        """The process that waits for a run, if there is one."""
        if self._child is None or self._ending is None:
            return None
        return SparkKept(since=self._since_ms, memory=self._memory, runs=self._child.runs)

    async def close(self) -> None:
        """End the process that waits."""
        await self._stay()
        if self._child is not None:
            await self._child.end()
            self._child = None

    async def _stay(self) -> None:
        """Take back that the process is to end; one that is ending has ended then."""
        ending, self._ending = self._ending, None
        if ending is None:
            return
        if self._child is not None:  # still waiting
            ending.cancel()
        await asyncio.wait([ending])

    async def _end_after(self, child: Child, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._child = None
        await child.end()
