"""The way of finished files into the data directory.

Spark and the job write below `run/`. What counts is brought into its place, or removed, by the
broker, through which everything goes that a backup or a replica has to see. Where no broker holds
the data directory, the steps are carried out here, in the same way.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from broker.schema.file_steps import Bring, Link, Remove, Step, Write

__all__ = [
    "HERE",
    "Bring",
    "BrokerPlacement",
    "Link",
    "Placement",
    "PlacementRefused",
    "Remove",
    "Step",
    "Write",
]

PATIENCE = 60.0
"""Seconds that a broker may be away, for instance while it restarts."""

PAUSE = 0.5
ANSWER_SECONDS_MAX = 600.0


class PlacementRefused(OSError):
    """The broker holds the data directory and does not answer; steps may have been done or not,
    and can be done again."""


class Placement(Protocol):
    """What carries steps out: in their order, and on disk at the end. Paths are absolute. Raises
    OSError; steps before the one that failed are done then."""

    def carry(self, steps: Sequence[Step]) -> None: ...


class _Here:
    """In this process."""

    def carry(self, steps: Sequence[Step]) -> None:
        from broker.store.directory.steps import carry

        carry(steps)


HERE: Placement = _Here()


class BrokerPlacement:
    """By the broker of a data directory, or in this process where there is none. Waits for the
    answer: not to be called on an event loop."""

    def __init__(self, data_dir: Path, patience: float = PATIENCE) -> None:
        self._data_dir = data_dir
        self._patience = patience

    def carry(self, steps: Sequence[Step]) -> None:
        if not steps:
            return
        from management.broker_client import BrokerError

        deadline = time.monotonic() + self._patience
        while is_locked(self._data_dir / "lock"):
            try:
                answer = asyncio.run(self._ask(steps))
            except BrokerError as error:
                if error.error != "broker_away":
                    raise PlacementRefused(f"the broker refuses files: {error.reason}") from None
                if time.monotonic() >= deadline:
                    raise PlacementRefused(
                        f"files of reports cannot be brought into their place: {error.reason}"
                    ) from None
                time.sleep(PAUSE)
                continue
            if answer["reason"]:
                raise OSError(answer["errno"], answer["reason"], answer["path"])
            return
        HERE.carry(steps)

    async def _ask(self, steps: Sequence[Step]) -> Any:
        from management.broker_client import BrokerClient

        client = BrokerClient(self._data_dir / "control.sock")
        try:
            return await client.call(
                "files.carry",
                timeout_s=ANSWER_SECONDS_MAX,
                steps=[self._relative(step) for step in steps],
            )
        finally:
            await client.close()

    def _relative(self, step: Step) -> Step:
        names = {
            name: os.path.relpath(getattr(step, name), self._data_dir)
            for name in ("source", "target")
            if hasattr(step, name)
        }
        return msgspec.structs.replace(step, **names)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file. It is not tried: a broker that starts at this moment
    must find it free."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return False
    locks = Path("/proc/locks").read_text().splitlines()
    return any("FLOCK" in line and f":{inode} " in line for line in locks)
