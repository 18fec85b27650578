"""`manage.py tiers`: connects to the broker, carries out its tasks, and comes back when it was
away. It keeps no state: it may be killed at any time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import struct
from concurrent.futures import ThreadPoolExecutor

import msgspec

from broker.schema.tier_work import FRAME_MAX, Answer, Task
from broker.serving import reloading
from broker.settings.config import Config, ConfigError
from management.priority import give_way
from management.tiers.work import UPLOAD_SLOWEST, Work

log = logging.getLogger("leveret.tiers")

AGAIN_FIRST_S = 0.1
AGAIN_MOST_S = 2.0
THREADS = 64

_LENGTH = struct.Struct(">I")


def main(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    give_way(config.tiers_nice)
    asyncio.run(Tiers(config).serve())
    # A thread that waits for a store which does not answer must not hold up the end.
    logging.shutdown()
    os._exit(0)


class Tiers:
    """The connection to the broker, and what is under way for it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._work = Work(
            config.tier_store,
            config.object_store_endpoint,
            config.object_store_region,
            config.tier_timeout,
        )
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self._tasks: set[asyncio.Task[None]] = set()
        self._encoder = msgspec.msgpack.Encoder()

    async def serve(self) -> None:
        """Until told to stop."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        working = asyncio.create_task(self._keep_connected())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _reload(self) -> None:
        """Of the settings that can change, only the log's concern this process."""
        try:
            reloaded = reloading.read_again(self._config, os.environ)
        except ConfigError as error:
            reloading.refuse(log, error)
            return
        self._config = reloaded.config
        reloading.follow(log, "tiers", reloaded)

    async def _keep_connected(self) -> None:
        wait = AGAIN_FIRST_S
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._config.tier_socket)
            except OSError:
                await asyncio.sleep(wait)
                wait = min(AGAIN_MOST_S, 2 * wait)
                continue
            wait = AGAIN_FIRST_S
            try:
                await self._serve_broker(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                for task in self._tasks:
                    task.cancel()
                writer.close()
            await asyncio.sleep(wait)

    async def _serve_broker(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        decoder = msgspec.msgpack.Decoder(Task)
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(4))
            if length > FRAME_MAX:
                log.error("the broker announced a frame of %d bytes", length)
                return
            given = decoder.decode(await reader.readexactly(length))
            task = asyncio.create_task(self._carry_out(given, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, task: Task, writer: asyncio.StreamWriter) -> None:
        """Answers a task, whatever the store does. A thread that it holds is left to it."""
        longest = 2 * self._config.tier_timeout + 2 * task.length / UPLOAD_SLOWEST
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._work.carry_out, task)
        try:
            async with asyncio.timeout(longest):
                answer = await asyncio.shield(work)
        except TimeoutError:
            work.add_done_callback(lambda done: done.exception())
            problem = f"{self._config.tier_store} did not answer in {longest:.0f} s"
            answer = Answer(task.id, "store", problem)
        content = self._encoder.encode(answer)
        with contextlib.suppress(ConnectionError):
            writer.write(_LENGTH.pack(len(content)) + content)
            await writer.drain()
