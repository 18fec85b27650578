"""The disk and the memory alarm: looks at both, and stops publishing while one is in force.

A thread of its own looks at least once a second, since a file system may hang: ten times a second
when the limit is near, as RabbitMQ does. While an alarm is in force a connection is blocked at its
first publish (`Connection.block`); one that only consumes never is. Consuming is what frees the
disk.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.process.allocator import give_memory_back
from broker.stats.node import memory_limit, resident_memory
from broker.store.directory.reserve import Reserve
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.alarms")

DISK, MEMORY = "disk", "memory"

LOOK_S = 1.0
LOOK_NEAR_S = 0.1
# How fast a disk may fill: what decides how soon to look again.
FILL_RATE = 250 * 1024 * 1024
# An alarm is cleared when its limit is left behind by this share, so that it does not flap.
CLEAR_SHARE = 0.05
DISK_LIMIT_LEAST = 50 * 1024 * 1024
# Connections that continue in one turn of the loop.
RESUMED_AT_ONCE = 32


class Reading(NamedTuple):
    """Bytes: free and all on the file system of the data directory, and the process's memory."""

    disk_free: int = 0
    disk_total: int = 0
    mem_used: int = 0
    disk_full: bool = False
    """Whether a write of the store waits for space."""


def disk_limit(config: Any) -> int:
    """Bytes that have to be free. By default all that may be in memory still fits: three segments,
    or the unwritten messages, and never less than 50 MiB."""
    given: int = config.disk_free_limit
    return given or max(3 * config.segment_size, config.tail_memory, DISK_LIMIT_LEAST)


def memory_watermark(config: Any) -> int:
    """Bytes of resident memory above which the alarm is set."""
    given: int | float = config.memory_high_watermark
    return given if isinstance(given, int) else int(given * memory_limit())


class Alarms:
    """`active` holds the names of the alarms in force."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.active: set[str] = set()
        self.configure(broker.config)
        self.reading = Reading()
        self._is_full_told = False
        self._reserve = reserve_of(broker.config)
        self._thread: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, config: Any) -> None:
        """Takes over the limits; the next look judges by them."""
        self.disk_limit = disk_limit(config)
        self.memory_watermark = memory_watermark(config)

    @property
    def reason(self) -> str:
        """What connection.blocked says, in RabbitMQ's words."""
        return "low on " + " & ".join(sorted(self.active, reverse=True))

    def start(self) -> None:
        """Checks once before the first client connects, then at intervals."""
        self._thread = ThreadPoolExecutor(1, "alarms")
        self.judge(self._look())
        self._task = asyncio.create_task(self._watch(), name="alarms")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._thread is not None:
            self._thread.shutdown(wait=False)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.pause())
            try:
                reading = await loop.run_in_executor(self._thread, self._look)
            except OSError as error:
                log.error("cannot read the free space: %s", error)
            else:
                self.judge(reading)

    def pause(self) -> float:
        """Seconds until the next look: less as the disk's limit is nearer."""
        if self.reading.disk_full:
            return LOOK_NEAR_S
        distance = abs(self.reading.disk_free - self.disk_limit)
        return min(LOOK_S, max(LOOK_NEAR_S, distance / FILL_RATE))

    def _look(self) -> Reading:
        if MEMORY in self.active:
            give_memory_back()
        free, total = disk.usage(str(self._broker.config.data_dir))
        full = self._broker.persister.writer.full
        if self._task is not None and not full:
            # Not at the start: until it listens, the broker may need what is kept for that.
            self._reserve.look_after(free, int(self.disk_limit * (1 + CLEAR_SHARE)))
        return Reading(free, total, resident_memory(), full)

    def judge(self, reading: Reading) -> None:
        """Sets and clears alarms by a reading."""
        self.reading = reading
        was_low = DISK in self.active
        share = 1 + (CLEAR_SHARE if was_low else 0)
        self._judge(DISK, reading.disk_free < self.disk_limit * share or reading.disk_full)
        if DISK not in self.active:
            self._is_full_told = False
        elif reading.disk_full and not self._is_full_told:
            self._is_full_told = True
            if was_low:
                # The alarm's own line said only that little is left.
                log.warning("%s alarm: %s", DISK, self.describe(DISK))
        share = 1 - (CLEAR_SHARE if MEMORY in self.active else 0)
        self._judge(MEMORY, reading.mem_used > self.memory_watermark * share)

    def _judge(self, name: str, wanted: bool) -> None:
        if wanted == (name in self.active):
            return
        if wanted:
            self.active.add(name)
            log.warning("%s alarm: %s", name, self.describe(name))
            for connection in list(self._broker.connections.values()):
                connection.alarm_set()
        else:
            self.active.discard(name)
            log.warning("%s alarm cleared: %s", name, self._figures(name))
            if not self.active:
                self._broker.run_task(self._let_go_on())
        event = "alarm.set" if wanted else "alarm.cleared"
        self._broker.emit(event, {"name": name, "text": self._figures(name)})

    async def _let_go_on(self) -> None:
        for number, connection in enumerate(list(self._broker.connections.values())):
            if self.active:
                # What still waits is let go when the new alarm is cleared.
                return
            connection.alarm_over()
            if number % RESUMED_AT_ONCE == RESUMED_AT_ONCE - 1:
                await asyncio.sleep(0)

    # -- what people read --------------------------------------------------------------------------

    @property
    def blocked(self) -> int:
        """How many connections wait with a publish."""
        return sum(1 for each in self._broker.connections.values() if each.blocked)

    def rows(self) -> list[dict[str, str]]:
        """The alarms in force, for the overview: name and sentences."""
        return [{"name": name, "text": self.describe(name)} for name in sorted(self.active)]

    def describe(self, name: str) -> str:
        """What is wrong, what that stops, and what to do."""
        remedy = (
            "Free disk space or drain queues"
            if name == DISK
            else "Fewer unfinished messages and connections need less"
        )
        return (
            f"{self._figures(name)}. Publishing waits, consuming continues. {remedy}; "
            "then publishing continues by itself."
        )

    def _figures(self, name: str) -> str:
        if name == DISK and self.reading.disk_full:
            return "the disk is full: what is not written waits in memory and is not confirmed"
        if name == DISK:
            return (
                f"{_mebibytes(self.reading.disk_free)} of the disk are free, "
                f"the limit is {_mebibytes(self.disk_limit)}"
            )
        return (
            f"the broker uses {_mebibytes(self.reading.mem_used)} of memory, "
            f"the limit is {_mebibytes(self.memory_watermark)}"
        )


def reserve_of(config: Any) -> Reserve:
    """The reserve file of a data directory."""
    return Reserve(str(config.data_dir / "reserve"), config.disk_reserve)


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
