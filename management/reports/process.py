"""The reports process: computes reports on schedule and on request, one at a time.

It never opens Spark itself. It keeps no state but the runs on disk, so it may be killed at any
time; a run it leaves unfinished is marked as failed at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from broker.settings.config import Config
from management.priority import give_way
from management.worker import Worker

from . import changes, client, delivery, installing, parameters, plans, tariff
from .access import ReportAccess
from .catalog import REPORTS
from .class_archive_maker import Maker
from .client import FRAME_MAX, LENGTH, Reply, Request
from .keeping import Keeping
from .kept import KeptJob
from .orders import Specification
from .placement import BrokerPlacement
from .records import Records, plain
from .runs import READING, STARTING, Delivery, Progress, Run, RunNotFound, Runs
from .schedule import Entry, Timetable
from .stores import Place

log = logging.getLogger(__name__)

EXIT_CANNOT_START = 1
MEBIBYTE = 1024 * 1024

# The wall clock is looked at this often while waiting for the schedule, so that a jump of it is
# noticed; the waits themselves go by the monotonic clock.
CLOCK_LOOK_SECONDS = 20.0

# How long the end of this process waits for runs that are brought into their place.
STOP_SECONDS_MAX = 2.0

# A scheduled run that the disk has no room for is tried again this much later.
SCHEDULE_AGAIN_MS = 5 * 60_000


def main(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    give_way(config.reports_nice)
    directory = config.data_dir.absolute() / "reports"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(directory / "lock")
    except OSError as error:
        print(f"reports: {directory} cannot be used: {error}", file=sys.stderr)
        return EXIT_CANNOT_START
    with lock:
        asyncio.run(Reports(config, directory).serve())
    return 0


def _lock(path: Path) -> IO[bytes]:
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise BlockingIOError("another reports process works in it") from None
    return lock


class Reports:
    """The schedule, the requests, and the run under way."""

    def __init__(self, config: Config, directory: Path) -> None:
        self._worker = Worker("reports", config, log)
        self._data_dir = config.data_dir.absolute()
        self._placement = BrokerPlacement(self._data_dir)
        self._runs = Runs(directory, self._placement)
        self._records = Records(self._runs)
        self._changes = changes.Changes(
            directory, BrokerPlacement(self._data_dir, changes.PATIENCE)
        )
        self._waiting: deque[Run] = deque()
        self._running: Run | None = None
        self._job = KeptJob(self._data_dir / "run" / "spark")
        self._archive = Maker(
            self._data_dir / "run" / "java",
            config.java_home,
            lambda: self._running is not None or self._job.is_kept,
        )
        self._work = asyncio.Event()
        self._stopping = False
        self._directory = directory
        self._timetable = Timetable()
        self._plans_problem = ""

    async def serve(self) -> None:
        """Work until told to stop. Raises OSError if the socket cannot be opened."""
        self._worker.listen()
        path = client.socket_path(self._data_dir)
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._on_connection, path)
        finally:
            os.umask(before)
        try:
            await asyncio.to_thread(self._runs.end_abandoned, _now_ms())
        except OSError as error:
            log.error("unfinished runs cannot be ended: %s", plain(error, self._data_dir))
        scheduling = asyncio.create_task(self._keep_schedule())
        working = asyncio.create_task(self._work_on_runs())
        log.info("schedule %s (UTC)", self._worker.config.reports_schedule)
        await self._worker.until_told(scheduling, working)
        server.close()
        self._stopping = True
        self._work.set()
        await self._job.cancel()
        await self._archive.end()
        await working
        for run in self._waiting:
            self._end(run, "cancelled")
        if scheduling.done():
            scheduling.result()
        scheduling.cancel()
        await asyncio.to_thread(self._records.close, STOP_SECONDS_MAX)
        path.unlink(missing_ok=True)

    # Requests.

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(client.TIMEOUT):
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length <= FRAME_MAX:
                    reply = await self._answer(await reader.readexactly(length))
                    data = msgspec.msgpack.encode(reply)
                    writer.write(LENGTH.pack(len(data)) + data)
                    await writer.drain()
        writer.close()

    async def _answer(self, data: bytes) -> Reply:
        try:
            request = msgspec.msgpack.decode(data, type=Request)
            if request.verb == "run":
                run = self.ask(request.report, request.asked_by, request.parameters)
                return Reply(run_id=run.run_id)
            if request.verb == "cancel":
                self.cancel(request.report, request.run_id)
                return Reply(run_id=request.run_id)
            if request.verb in changes.VERBS:
                await self._changes.make(request)
                self._refresh(_now_ms())
                return Reply()
            if request.verb == "status":
                return Reply(
                    schedules=self._timetable.schedules(),
                    next_at=self._timetable.next_at(),
                    plans=self._timetable.plans(),
                    unwritten=self._records.unwritten,
                    spark=self._job.standing(),
                    is_installing=installing.under_way(),
                )
            return Reply(error=f"there is no request {request.verb!r}")
        except (RunNotFound, OSError, ValueError) as error:
            return Reply(error=plain(error, self._data_dir))

    def ask(self, report: str, asked_by: str | None, given: Mapping[str, str] | None = None) -> Run:
        """Have a report run; if it waits or runs already with the same parameters, that run.

        Raises RunNotFound, OSError, and ValueError if a parameter is wrong or too many runs wait.
        """
        if report not in REPORTS:
            raise RunNotFound(f"there is no report {report!r}")
        _, wanted = parameters.read(REPORTS[report], given or {})
        for run in (self._running, *self._waiting):
            if run is not None and (run.report, run.parameters) == (report, wanted):
                return run
        self._check_room(asked_by)
        run = self._runs.new(report, asked_by, _now_ms(), wanted)
        self._waiting.append(run)
        self._work.set()
        return run

    def _check_room(self, asked_by: str | None) -> None:
        """Raises ValueError where no more runs may wait, of all or of this user. What the schedule
        asks for has no user, always finds room, and is one run of each report at most."""
        if asked_by is None:
            return
        most = self._worker.config.reports_waiting_max
        own = sum(1 for run in self._waiting if run.asked_by == asked_by)
        if own >= most // 4:
            raise ValueError(
                f"{own} runs that {asked_by!r} asked for wait already, and no more than {most // 4}"
                " may (a quarter of reports_waiting_max): wait for them, or cancel some"
            )
        if len(self._waiting) >= most:
            raise ValueError(
                f"{most} runs wait already (reports_waiting_max): wait for them, or cancel some"
            )

    def cancel(self, report: str, run_id: str) -> None:
        """End a run that waits or runs. Raises RunNotFound if there is none such."""
        for run in self._waiting:
            if (run.report, run.run_id) == (report, run_id):
                self._waiting.remove(run)
                self._end(run, "cancelled")
                return
        run_now = self._running
        if run_now is None or (run_now.report, run_now.run_id) != (report, run_id):
            raise RunNotFound(f"run {run_id!r} of report {report!r} neither waits nor runs")
        self._cancelling = asyncio.create_task(self._job.cancel())

    # Schedule and plans.

    def _refresh(self, now_ms: int) -> None:
        """Read the plans; without a file that can be read there are none but the settings'."""
        found: list[plans.Plan] = []
        problem = ""
        try:
            found = plans.read(self._directory)
        except (OSError, ValueError) as error:
            problem = str(error)
        if problem and problem != self._plans_problem:  # once, not at every look
            log.error("plans: %s", problem)
        self._plans_problem = problem
        config = self._worker.config
        every = {"schedule": config.reports_schedule, "day": config.reports_daily_schedule}
        own = {one.report for one in found if one.is_default}
        entries = [
            Entry(report.name, every[report.every], {})
            for report in REPORTS.values()
            if report.name not in own
        ]
        entries += [Entry(one.report, one.schedule, one.parameters, one.name) for one in found]
        self._timetable.refresh(entries, now_ms)

    async def _keep_schedule(self) -> None:
        while True:
            self._refresh(_now_ms())
            first = self._timetable.first
            wait = CLOCK_LOOK_SECONDS if first is None else (first - _now_ms()) / 1000
            if wait > 0:
                await asyncio.sleep(min(wait, CLOCK_LOOK_SECONDS))
            now_ms = _now_ms()
            for entry in self._timetable.take(now_ms):
                # A plan may deliver: it is computed also if the feed says nothing new.
                if entry.plan or self._has_news(entry.report):
                    self._ask_on_schedule(entry, now_ms)
            self._records.write_again()
            self._records.tidy()

    def _ask_on_schedule(self, entry: Entry, now_ms: int) -> None:
        try:
            run = self.ask(entry.report, None, entry.parameters)
        except OSError as error:
            # Soon again: the run would otherwise be left out until the schedule comes round.
            self._timetable.postpone(entry, now_ms + SCHEDULE_AGAIN_MS)
            log.error("scheduled run of %s: %s", entry.report, plain(error, self._data_dir))
            return
        if entry.plan and entry.plan not in run.plans:
            run.plans.append(entry.plan)

    def _deliver(self, run: Run) -> None:
        """Tell whom the plans of a run name, in a thread of its own, and note how it went."""
        found = [one for one in plans.read(self._directory)
                 if one.report == run.report and one.name in run.plans]  # fmt: skip
        told = [one for one in found if one.webhook or one.mail]
        if not told:
            return
        loop, config = asyncio.get_running_loop(), self._worker.config
        access = ReportAccess(self._data_dir)

        def note(done: list[Delivery]) -> None:
            run.deliveries += done
            self._records.add(run)
            for one in done:
                if one.error:
                    log.error("run %s of %s: %s: %s", run.run_id, run.report, one.kind, one.error)

        def deliver() -> None:
            for plan in told:
                done = delivery.deliver(
                    plan, run, lambda most: access.csv(run, most), config.smtp_url, config.smtp_from
                )
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(note, done)

        # A daemon: the end of the process does not wait for a slow server.
        threading.Thread(target=deliver, daemon=True).start()

    def _has_news(self, report: str) -> bool:
        """Whether the feed was written to since the report's last result: else it would repeat."""
        # One that began later than now was recorded by a clock that was ahead: it says nothing.
        last = self._runs.last_done(report, until_ms=_now_ms())
        try:
            changed = [path.stat().st_mtime for path in (self._data_dir / "usage").glob("*.jsonl*")]
        except OSError:
            return True  # a file was renamed under our eyes
        if last is None:
            return bool(changed)
        return any(at * 1000 >= (last.started_at or 0) for at in changed)

    # Runs.

    async def _work_on_runs(self) -> None:
        while not self._stopping:
            await self._work.wait()
            self._work.clear()
            while self._waiting and not self._stopping:
                if installing.under_way():
                    await asyncio.sleep(installing.LOOK_SECONDS)
                    continue
                self._running = self._waiting.popleft()
                await self._run(self._running)
                self._running = None
                if not self._waiting:
                    self._archive.begin(self._worker.config.spark_class_archive)
                keep, memory = self._worker.config.spark_keep, self._worker.config.spark_keep_memory
                await self._job.rest(keep, memory, more=bool(self._waiting))
        await self._job.close()

    async def _run(self, run: Run) -> None:
        run.state = "running"
        run.started_at = _now_ms()
        # The job itself says so only when Python has started.
        run.progress = Progress(step=READING if self._job.is_kept else STARTING)
        self._records.write(run)
        directory = self._runs.path(run.report, run.run_id)

        def tell(progress: Progress) -> None:
            run.progress = progress
            self._records.write(run, sync=False)

        try:
            outcome = await self._job.run(
                self._specification(run, directory), directory / "log", tell
            )
        except OSError as error:
            self._end(run, "failed", f"Spark's process cannot be started: {error}")
            return
        except ValueError as error:
            self._end(run, "failed", str(error))
            return
        finally:
            shutil.rmtree(directory / "scratch", ignore_errors=True)
        run.rows_read = outcome.rows_read
        run.rows_unreadable = outcome.rows_unreadable
        run.rows_written = outcome.rows_written
        run.hours_compacted = outcome.hours_compacted
        run.spark = outcome.spark
        run.gaps = outcome.gaps
        run.store_error = outcome.store_error
        if run.store_error:
            log.error(
                "run %s of %s is not in the object store: %s",
                run.run_id, run.report, run.store_error,
            )  # fmt: skip
        if outcome.error is None:
            run.progress = Progress(
                step="done",
                stage=outcome.stages,
                stages=outcome.stages,
                rows_read=run.progress.rows_read,
            )
            self._end(run, "done")
        elif self._job.was_cancelled:
            self._end(run, "cancelled")
        else:
            self._end(run, "failed", outcome.error)

    def _end(self, run: Run, state: str, error: str | None = None) -> None:
        run.state = state  # type: ignore[assignment]
        run.ended_at = _now_ms()
        run.error = error
        self._records.write(run)
        self._records.bring(run)
        if error is not None:
            log.error("run %s of %s failed: %s", run.run_id, run.report, error)
        else:
            log.info("run %s of %s is %s", run.run_id, run.report, state)
        if run.plans and state != "cancelled":
            try:
                self._deliver(run)
            except (OSError, ValueError) as problem:
                log.error("run %s of %s is not delivered: %s", run.run_id, run.report, problem)

    def _specification(self, run: Run, directory: Path) -> Specification:
        config = self._worker.config
        return Specification(
            report=run.report,
            parameters=run.parameters,
            run_id=run.run_id,
            run_directory=str(directory),
            usage_directory=str(self._data_dir / "usage"),
            work_directory=str(self._data_dir / "run" / "reports" / "work"),
            keeping=Keeping(
                lines=config.usage_lines_keep,
                hours=config.usage_hourly_keep,
                everything=config.usage_keep,
            ),
            launcher_directory=str(self._data_dir / "run" / "java"),
            java_home=str(config.java_home) if config.java_home else None,
            spark_master=config.spark_master,
            options={
                "spark.driver.memory": f"{config.spark_driver_memory // MEBIBYTE}m",
                **dict(option.split("=", 1) for option in config.spark_options),
            },
            reports_directory=str(self._data_dir / "reports"),
            tariffs=tariff.read(self._data_dir / "reports"),
            close_after=config.reports_close_after,
            store=Place(
                config.object_store, config.object_store_endpoint, config.object_store_region
            ),
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
