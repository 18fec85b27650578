"""`manage.py tiers`: connects to the broker, carries out its tasks, and comes back when it was
away. It keeps no state: it may be killed at any time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import msgspec

from broker.schema.tier_work import FRAME_MAX, Answer, Task
from broker.settings.config import Config
from management.priority import give_way
from management.tiers.work import UPLOAD_SLOWEST, Work
from management.worker import Worker

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
        self._worker = Worker("tiers", config, log)
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
        try:
            await self._worker.work(self._keep_connected())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _keep_connected(self) -> None:
        wait = AGAIN_FIRST_S
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._worker.config.tier_socket)
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
        longest = 2 * self._worker.config.tier_timeout + 2 * task.length / UPLOAD_SLOWEST
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._work.carry_out, task)
        try:
            async with asyncio.timeout(longest):
                answer = await asyncio.shield(work)
        except TimeoutError:
            work.add_done_callback(lambda done: done.exception())
            problem = f"{self._worker.config.tier_store} did not answer in {longest:.0f} s"
            answer = Answer(task.id, "store", problem)
        content = self._encoder.encode(answer)
        with contextlib.suppress(ConnectionError):
            writer.write(_LENGTH.pack(len(content)) + content)
            await writer.drain()
