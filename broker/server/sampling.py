"""Runs the sampler: once a second over all objects, every five seconds over the machine; and once a
minute what is kept of it on disk (`broker.stats.history`)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.stats import History, NodeReading, read_node
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger(__name__)

_STEP_S = 0.0002
_NODE_EVERY_S = 5.0


def kept_history(config: Any) -> History:
    """The history on disk that the settings ask for."""
    directory = str(config.data_dir / "history")
    return History(disk, directory, config.history_bytes_max, lambda: time.sleep(0))


class Sampling:
    """Takes the samples. `listeners` are called after each sample; they must not wait."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.listeners: list[Callable[[], None]] = []
        self.node = NodeReading()
        self.cpu_rate = 0.0
        """Processor seconds used per second."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        history = self._broker.history
        self._broker.stats.keeps_steps = history.bytes_max > 0
        if history is not None:
            history.begin(self._broker.vhosts.values())
        self._tasks = [
            asyncio.create_task(self._sample(), name="sampling"),
            asyncio.create_task(self._read_node(), name="node reading"),
        ]

    async def close(self) -> None:
        """Ends the tasks; what was sampled since the last minute is written."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks and self._broker.history.bytes_max:
            try:
                await self._write_history()
            except Exception:
                # The broker stops without it.
                log.exception("the last step of the history failed")
        self._tasks = []

    async def once(self) -> None:
        """Takes one sample now."""
        persister, levels = self._broker.persister, self._broker.stats.node.levels
        for name, times in (("sync", persister.sync_times), ("confirm", persister.confirm_times)):
            if times:
                in_order = sorted(times)
                for share in (50, 99):
                    seconds = in_order[len(in_order) * share // 100]
                    levels[f"{name}_p{share}_ms"] = round(seconds * 1000, 3)
        until = time.perf_counter() + _STEP_S
        for _ in self._broker.stats.sample(self._broker):
            if time.perf_counter() >= until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _STEP_S
        for listener in list(self.listeners):
            listener()

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                await self.once()
            except Exception:
                log.exception("a sample of the statistics failed")
            history = self._broker.history
            if history.is_due(self._broker.stats.sampled_at):
                try:
                    await self._write_history()
                except Exception:
                    log.exception("a step of the history failed")
            due = max(due + 1.0, loop.time() + 0.1)
            await asyncio.sleep(due - loop.time())

    async def _write_history(self) -> None:
        stats, vhosts = self._broker.stats, self._broker.vhosts.values()
        until = time.perf_counter() + _STEP_S
        for step in self._broker.history.steps(stats, vhosts, stats.sampled_at):
            if step is not None:
                await asyncio.to_thread(step)
            elif time.perf_counter() >= until:
                await asyncio.sleep(0)
                until = time.perf_counter() + _STEP_S

    async def _read_node(self) -> None:
        while True:
            try:
                before, reading = (
                    self.node,
                    await asyncio.to_thread(read_node, self._broker.config.data_dir),
                )
            except OSError as error:
                log.error("cannot read the state of the machine: %s", error)
            else:
                self.node = reading
                if before.at:
                    seconds = max(0.001, (reading.at - before.at) / 1000)
                    self.cpu_rate = (reading.cpu_seconds - before.cpu_seconds) / seconds
                levels = self._broker.stats.node.levels
                levels["mem_used"] = reading.mem_used
                levels["disk_free"] = reading.disk_free
                levels["fd_used"] = reading.fd_used
            await asyncio.sleep(_NODE_EVERY_S)
