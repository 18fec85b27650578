"""Starts a run's job as a child process, follows it, and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from .job import Answer, Outcome, Specification
from .runs import Progress

ROOT = Path(__file__).resolve().parents[2]

# Longest time a run may take, and how long it may take to end when it is told to.
RUN_SECONDS_MAX = 6 * 3600
END_SECONDS_MAX = 5.0
LINE_MAX = 1 << 20


class Child:
    """One job. It ends when this process does, however that happens."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._cancelled = False

    async def run(
        self, specification: Specification, log: Path, tell: Callable[[Progress], None]
    ) -> Outcome:
        """Run the job to its end, calling `tell` with its progress.

        Fills in the specification's `answer_descriptor`. An outcome always comes back: if the job
        dies, it says so. Raises OSError if the process cannot be started.
        """
        reading, writing = os.pipe()
        specification.answer_descriptor = writing
        with _opened(log) as output, os.fdopen(reading, "rb") as answers:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "management.reports.job",
                    cwd=ROOT,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(writing,),
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            assert self._process.stdin is not None
            if self._cancelled:  # while it was being started
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.stdin.write(msgspec.json.encode(specification) + b"\n")
            try:
                async with asyncio.timeout(RUN_SECONDS_MAX):
                    outcome = await _follow(answers, tell)
            except TimeoutError:
                outcome = Outcome(error=f"ended: it took longer than {RUN_SECONDS_MAX} seconds")
            finally:
                status = await self._end()
        return outcome or Outcome(error=f"Spark's process ended with status {status}; see its log")

    async def cancel(self) -> None:
        """End the job now."""
        self._cancelled = True
        await self._end(at_once=True)

    @property
    def was_cancelled(self) -> bool:
        return self._cancelled

    async def _end(self, at_once: bool = False) -> int:
        """Let the job end by itself, or tell it to; after END_SECONDS_MAX it is killed."""
        process = self._process
        if process is None:
            return 0
        for signal_number in (signal.SIGTERM if at_once else None, signal.SIGKILL):
            if signal_number is not None and process.returncode is None:
                # The job leads a process group of its own, with Spark's JVM in it.
                os.killpg(process.pid, signal_number)
            try:
                async with asyncio.timeout(END_SECONDS_MAX):
                    return await process.wait()
            except TimeoutError:
                continue
        return await process.wait()


def _opened(log: Path) -> IO[bytes]:
    """The log; where the disk has no room for one, a run may still say what it did."""
    try:
        return log.open("ab")
    except OSError:
        return Path(os.devnull).open("ab")


async def _follow(answers: object, tell: Callable[[Progress], None]) -> Outcome | None:
    reader = asyncio.StreamReader(limit=LINE_MAX)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), answers
    )
    try:
        while line := await reader.readline():
            answer = msgspec.json.decode(line, type=Answer)
            if answer.outcome is not None:
                return answer.outcome
            if answer.progress is not None:
                tell(answer.progress)
        return None
    finally:
        transport.close()
