"""What the children of the supervisor that work for the broker have in common: they end on
SIGTERM, and read the settings again when those may have changed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any

from broker.process import pulse
from broker.serving import reloading
from broker.settings.config import Config, ConfigError


class Worker:
    """One such process. `config` is what was read last; of the settings that can change, only those
    of the log concern a worker by themselves."""

    def __init__(self, name: str, config: Config, log: logging.Logger) -> None:
        self.config = config
        self._name = name
        self._log = log
        self._told: asyncio.Event | None = None

    def listen(self) -> None:
        """Catches signals from now on, and gives the supervisor signs of life; `until_told` does it
        at the latest."""
        if self._told is not None:
            return
        self._told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        pulse.begin(loop.call_later)

    async def until_told(self, *tasks: asyncio.Task[None]) -> None:
        """Returns on SIGTERM and SIGINT, or when one of the tasks has ended: it has failed, and the
        process shall end rather than sit there without it."""
        self.listen()
        assert self._told is not None
        waiting = asyncio.create_task(self._told.wait())
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def work(self, *works: Coroutine[Any, Any, None]) -> None:
        """Runs them until a signal ends the process; raises what one of them failed with. The
        supervisor restarts it if it hangs meanwhile."""
        tasks = [asyncio.create_task(each) for each in works]
        await self.until_told(*tasks)
        failed = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in failed:
            task.result()

    def _reload(self) -> None:
        try:
            reloaded = reloading.read_again(self.config, os.environ)
        except ConfigError as error:
            reloading.refuse(self._log, error)
            return
        self.config = reloaded.config
        reloading.follow(self._log, self._name, reloaded)
