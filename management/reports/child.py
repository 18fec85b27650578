"""A job's process: starts it, has it compute runs one after another, follows it, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from .orders import Answer, Outcome, Specification
from .runs import Progress

ROOT = Path(__file__).resolve().parents[2]

# Longest time a run may take, and how long a job may take to end after SIGTERM.
RUN_SECONDS_MAX = 6 * 3600
END_SECONDS_MAX = 5.0
LINE_MAX = 1 << 20
LOG_PART = 1 << 16


class Child:
    """One job's process. It ends when this process does, however that happens. Spark's temporary
    files are in a directory of its own below `place`, which goes with it.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._scratch: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._answers: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._printing: asyncio.Task[None] | None = None
        self._log: IO[bytes] | None = None
        self._cancelled = False
        self.runs = 0
        self.was_heard = False
        """Whether the job has said anything of the last run: else it had ended before."""

    async def run(
        self, specification: Specification, log: Path, tell: Callable[[Progress], None]
    ) -> Outcome:
        """Have the job compute a run to its end, calling `tell` with its progress.

        Fills in the specification's `spark_directory`. An outcome always comes back: if the job
        dies, it says so. After one with an error, or one that asks for another process, this one is
        at its end. Raises OSError if the process cannot be started.
        """
        self.runs += 1
        self.was_heard = False
        self._follow_log(log)
        if self._process is None:
            await self._start()
        outcome = None
        try:
            specification.spark_directory = str(self._scratch)
            await self._send(msgspec.json.encode(specification))
            async with asyncio.timeout(RUN_SECONDS_MAX):
                outcome = await self._outcome(tell)
        except TimeoutError:
            outcome = Outcome(error=f"ended: it took longer than {RUN_SECONDS_MAX} seconds")
        finally:
            if outcome is None or outcome.again or outcome.error is not None:
                status = await self.end()
        return outcome or Outcome(error=f"Spark's process ended with status {status}; see its log")

    async def cancel(self) -> None:
        """End the job now."""
        self._cancelled = True
        await self.end(at_once=True)

    async def end(self, at_once: bool = False) -> int:
        """Let the job end by itself, or make it; after END_SECONDS_MAX it is killed. Returns its
        status.
        """
        process = self._process
        if process is None:
            return 0
        if not at_once:
            await self._send(b"")
        for signal_number in (signal.SIGTERM if at_once else None, signal.SIGKILL):
            if signal_number is not None and process.returncode is None:
                # The job leads a process group of its own, with Spark's JVM in it.
                os.killpg(process.pid, signal_number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS_MAX):
                    await process.wait()
                    break
        status = await process.wait()
        await self._close()
        return status

    @property
    def was_cancelled(self) -> bool:
        return self._cancelled

    @property
    def is_over(self) -> bool:
        """Whether its process has ended, so that another one is needed."""
        return self._process is not None and self._process.returncode is not None

    def memory(self) -> int:
        """Bytes of memory of the process and what it started, as far as the system tells."""
        if self._process is None:
            return 0
        # By their size: a process that Java has begun, and that runs no program yet, has Java's
        # own memory.
        return sum(dict(map(_memory, _tree(self._process.pid))).values())

    async def _start(self) -> None:
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(dir=self._place))
        reading, writing = os.pipe()
        answers = os.fdopen(reading, "rb", buffering=0)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "management.reports.job",
                str(writing),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            answers.close()
            raise
        finally:
            os.close(writing)
        if self._cancelled:  # while it was being started
            os.killpg(self._process.pid, signal.SIGKILL)
        reader = self._answers = asyncio.StreamReader(limit=LINE_MAX)
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), answers
        )
        self._printing = asyncio.create_task(self._copy_log())

    async def _send(self, line: bytes) -> None:
        """Write a line to the job; one that has ended says so by its answers."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()

    async def _outcome(self, tell: Callable[[Progress], None]) -> Outcome | None:
        assert self._answers is not None
        while line := await self._answers.readline():
            self.was_heard = True
            answer = msgspec.json.decode(line, type=Answer)
            if answer.outcome is not None:
                return answer.outcome
            if answer.progress is not None:
                tell(answer.progress)
        return None

    async def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        if self._printing is not None:
            # What was started by the job, and lives, may hold its output open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS_MAX):
                    await self._printing
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    # What Spark prints, in the log of the run under way. A JVM keeps the output it was started
    # with, so it is copied here.

    def _follow_log(self, path: Path) -> None:
        if self._log is not None:
            self._log.close()
        try:
            self._log = path.open("ab", buffering=0)
        except OSError:  # where there is no room for a log, a run may still say what it did
            self._log = None

    async def _copy_log(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(LOG_PART):
            if self._log is not None:
                with contextlib.suppress(OSError):
                    self._log.write(data)


def _tree(pid: int) -> list[int]:
    """A process and those below it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _tree(int(child))
    return found


def _memory(pid: int) -> tuple[int, int]:
    """The size of a process, and how much of it is in memory, in bytes."""
    try:
        size, resident = Path(f"/proc/{pid}/statm").read_text().split()[:2]
    except (OSError, ValueError):
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return int(size) * page, int(resident) * page
