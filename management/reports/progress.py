"""Watches what Spark says of its own work while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from .runs import STARTING, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL = 0.5
SETTLE_MS = 5000


class Watch:
    """Calls `tell` with a Progress whenever it has changed, until closed.

    Of a session that has run before only what it does from `watch` on counts. A session in a JVM of
    its own is asked twice a second through its status tracker; Spark Connect reports by itself, but
    says nothing of rows.
    """

    def __init__(self, tell: Callable[[Progress], None], step: str = STARTING) -> None:
        self._tell = tell
        self._step = step
        self._last: Progress | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._stages: dict[int, tuple[int, int, bool]] = {}
        self._connect: SparkSession | None = None
        self._local: tuple[SparkSession, frozenset[int]] | None = None
        self._update(Progress(step=self._step))

    def step(self, step: str) -> None:
        """Name what is being done from now on."""
        with self._lock:
            last = self._last or Progress()
        self._step = step
        self._update(
            Progress(step=step, stage=last.stage, stages=last.stages, rows_read=last.rows_read)
        )

    def watch(self, spark: SparkSession, *, connect: bool) -> None:
        """Begin to watch the session."""
        if connect:
            spark.registerProgressHandler(self._connect_progress)  # type: ignore[arg-type]
            self._connect = spark
        else:
            before = frozenset(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
            self._local = spark, before
            threading.Thread(target=self._poll, args=(spark, before), daemon=True).start()

    def settle(self) -> None:
        """All work is done: report it whole, also what was done since the session was last asked.
        Raises py4j's errors."""
        if self._local is not None:
            spark, before = self._local
            # Spark counts in a thread of its own.
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(SETTLE_MS)
            self._update(from_tracker(spark.sparkContext, self._step, before))

    def close(self) -> None:
        """Stop watching; no progress is reported from now on."""
        self._ended.set()
        if self._connect is not None:
            self._connect.removeProgressHandler(self._connect_progress)  # type: ignore[arg-type]
            self._connect = None

    @property
    def stages(self) -> int:
        """How many stages Spark has begun or planned so far."""
        return self._last.stages if self._last else 0

    def _update(self, progress: Progress) -> None:
        with self._lock:
            if progress == self._last or self._ended.is_set():
                return
            self._last = progress
        self._tell(progress)

    def _poll(self, spark: SparkSession, before: frozenset[int]) -> None:
        context = spark.sparkContext
        while not self._ended.wait(INTERVAL):
            try:
                self._update(from_tracker(context, self._step, before))
            except Exception:  # the session is ending; the job itself says how
                return

    def _connect_progress(self, stages: Iterable[Any] | None, **_: Any) -> None:
        for stage in stages or ():
            self._stages[stage.stage_id] = (
                stage.num_tasks,
                stage.num_completed_tasks,
                stage.done,
            )
        known = self._stages.values()
        under_way = [stage for stage in known if not stage[2]]
        self._update(
            Progress(
                step=self._step,
                stage=min(len(known) - len(under_way) + 1, len(known)),
                stages=len(known),
                tasks_done=sum(stage[1] for stage in under_way),
                tasks=sum(stage[0] for stage in under_way),
            )
        )


def from_tracker(context: Any, step: str, before: Collection[int] = ()) -> Progress:
    """Progress over a context's jobs so far, without those `before`. Raises py4j's errors if the
    JVM is gone."""
    tracker = context.statusTracker()
    ended: set[int] = set()
    known: set[int] = set()
    for job_id in set(tracker.getJobIdsForGroup(None)) - set(before):
        job = tracker.getJobInfo(job_id)
        if job is not None:
            known.update(job.stageIds)
            if job.status != "RUNNING":
                ended.update(job.stageIds)
    tasks = tasks_done = rows = 0
    store = context._jsc.sc().statusStore()
    for stage_id in sorted(known):
        stage = tracker.getStageInfo(stage_id)
        if stage is None:
            continue  # planned only, or skipped because its output was there already
        rows += store.lastStageAttempt(stage_id).inputRecords()
        if stage_id in ended:
            continue
        if 0 < stage.numTasks == stage.numCompletedTasks:
            ended.add(stage_id)
        elif stage.numActiveTasks or stage.numCompletedTasks:
            tasks += stage.numTasks
            tasks_done += stage.numCompletedTasks
    return Progress(
        step=step,
        stage=min(len(ended & known) + 1, len(known)),
        stages=len(known),
        tasks_done=tasks_done,
        tasks=tasks,
        rows_read=rows,
    )
