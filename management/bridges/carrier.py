"""What the two ways of carrying messages have in common."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from broker.client.aio import Channel, Connection, OnBatch
from broker.client.batch import Batch
from broker.client.errors import ClientError
from management.bridges.plan import Plan
from management.bridges.source import Source
from management.bridges.status import Status

AGAIN_FIRST_S = 1.0
AGAIN_MOST_S = 60.0


def backoff(first: float, most: float, failures: int) -> float:
    """Seconds before the next try, doubling, with jitter so that many do not come at once."""
    longest = min(first * 2.0 ** min(failures, 30), most)
    return longest * random.uniform(0.75, 1.25)  # noqa: S311


class Ending:
    """The end of one attempt: it is over, or it has failed. The first call counts."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # An attempt that is cancelled looks at it no more, and its connections are closed then.
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())

    @property
    def has_come(self) -> bool:
        return self._future.done()

    def finish(self) -> None:
        """All is moved."""
        if not self._future.done():
            self._future.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def wait(self) -> None:
        """Raises ShovelFailed, or whatever failed."""
        await asyncio.shield(self._future)

    def follow(self, source: Source) -> None:
        """Fails when the source's connection, channel or consumer ends."""

        def ended(future: asyncio.Future[ClientError]) -> None:
            self.fail(source.failed(future.result()))

        source.channel.ended.add_done_callback(ended)


class Reading:
    """Whether the source is read: not while too much is under way."""

    def __init__(self, connection: Connection, most: int) -> None:
        self._connection = connection
        self._most = most
        self._is_held = False

    def bound(self, held_bytes: int) -> None:
        """Stops reading above the limit of held bytes, and starts it again below half of it."""
        if not self._is_held and held_bytes > self._most:
            self._is_held = True
            self._connection.hold_reading(True)
        elif self._is_held and held_bytes <= self._most // 2:
            self._is_held = False
            self._connection.hold_reading(False)


class Limit:
    """How many messages an attempt moves, and when they are acknowledged: those behind `ack_most`
    at the end, so that the source never delivers more than the limit."""

    def __init__(self, plan: Plan, status: Status, source: Source) -> None:
        wanted = plan.given["src-delete-after"]
        if wanted == "queue-length":
            if status.remaining is None:
                status.remaining = source.message_count
        elif wanted != "never" and status.remaining is None:
            status.remaining = wanted
        self.is_set = status.remaining is not None
        self.requeues = self.is_set and plan.acks
        """What the source delivers beyond the limit, because others were settled early, goes
        back."""
        self.count = status.remaining or 0
        self.prefetch = plan.prefetch
        self.ack_most = -1
        if self.is_set:
            self.prefetch = min(plan.prefetch or self.count, self.count, 65535)
            self.ack_most = self.count - self.prefetch


@contextlib.asynccontextmanager
async def beside(ending: Ending, *work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs tasks beside the block, and ends them with it; one that fails ends the attempt."""

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            ending.fail(task.exception())  # type: ignore[arg-type]

    tasks = [asyncio.create_task(each) for each in work]
    for task in tasks:
        task.add_done_callback(done)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def carry(
    source: Source,
    limit: Limit,
    ending: Ending,
    status: Status,
    take: OnBatch,
    *work: Coroutine[Any, Any, None],
) -> None:
    """Has `take` get the deliveries of the source, with `work` beside it, until the ending comes;
    then everything that was delivered is acknowledged, up to the limit. Raises ShovelFailed."""
    track = source.track
    delivered = 0

    def taken(channel: Channel, batch: Batch) -> None:
        nonlocal delivered
        delivered = batch.last_tag
        take(channel, batch)

    kept = (track.keep(),) if track is not None else ()
    try:
        async with beside(ending, *work, *kept):
            await source.consume(taken, limit.prefetch)
            async with beside(ending, source.watch(ending.fail)):
                status.put("running")
                await ending.wait()
        await source.stop_consuming()
        if limit.requeues:
            # An attempt has a channel of its own: its deliveries are numbered from 1 on.
            for tag in range(limit.count + 1, delivered + 1):
                source.channel.core.nack(tag, False, True)
        source.channel.core.ack(0, True)
        await source.channel.close()
    except ClientError as error:
        raise source.failed(error) from None
    finally:
        # Nothing is taken and published any more behind the place that is kept last.
        ending.finish()
        if track is not None:
            await track.close()
